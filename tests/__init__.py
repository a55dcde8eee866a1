"""Tests, laid out as the package is."""

from hypothesis import settings

# The first example of a test may compile a kernel, so the time of a single one says nothing.
settings.register_profile("deql", deadline=None)
settings.load_profile("deql")
