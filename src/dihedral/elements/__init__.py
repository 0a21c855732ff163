"""The dihedral group and its graded monoid."""
