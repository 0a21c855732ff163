"""The endpoints: one function per endpoint, which calls the library and builds the response."""
