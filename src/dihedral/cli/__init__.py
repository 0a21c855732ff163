"""The command line: one thin module per command, which parses, calls the library and prints."""
