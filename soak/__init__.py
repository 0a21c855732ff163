"""Fault-injection campaigns that test the promises of the library."""
