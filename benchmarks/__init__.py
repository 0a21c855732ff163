"""Benchmarks: dihedral beside other libraries on the same data and the same machine."""
