"""The command line: ``deql demo | fit | recommend | similar | explain``."""

from deql.cli.app import main, run

__all__ = ["main", "run"]
