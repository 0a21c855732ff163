"""The computations that take most of the time, as functions of tensors; `dihedral.reference` says what they compute."""
