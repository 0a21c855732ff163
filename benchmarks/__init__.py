"""Benchmarks of dihedral, with other libraries on the same data and the same machine where they exist."""
