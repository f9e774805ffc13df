"""``python -m bigmc`` is the command line."""

from bigmc.cli import main

if __name__ == "__main__":
    main()
