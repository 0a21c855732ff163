"""`python -m dihedral` is the command line."""

from dihedral.cli import main

if __name__ == "__main__":
    main()
