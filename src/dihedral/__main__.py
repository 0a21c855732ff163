"""`python -m dihedral` is the command line."""

from dihedral.cli.main import main

if __name__ == "__main__":
    main()
