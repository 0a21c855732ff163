"""The command line: one thin module per command, which parses arguments, calls the library and prints the result."""
