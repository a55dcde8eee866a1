"""``python -m deql``: the ``deql`` command where it is not on the path."""

from deql.cli import main

if __name__ == "__main__":
    main()
