"""Fault campaigns: what the library promises, tried by force."""
