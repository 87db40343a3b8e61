"""`python -m akg_py`: the command line."""

from akg_py.cli import main

if __name__ == "__main__":
    main()
