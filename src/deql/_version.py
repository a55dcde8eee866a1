"""The version, apart from the public names, so that files can carry it."""

__version__ = "0.1.0"
