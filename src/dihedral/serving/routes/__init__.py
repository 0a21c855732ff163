"""One function an endpoint, which asks the library and shapes the answer."""
