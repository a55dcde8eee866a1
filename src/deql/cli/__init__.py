"""The command line: ``deql --help`` lists its commands, and each has a file of its name."""

from deql.cli.app import main, run

__all__ = ["main", "run"]
