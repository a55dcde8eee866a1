"""The command line: ``deql demo | fit | evaluate | compare | recommend | similar | explain | data``."""

from deql.cli.app import main, run

__all__ = ["main", "run"]
