"""Histories in, top k and explanations out. Imports nothing itself: a device ranks where numba is absent."""

__all__ = ["NO_ITEM"]

NO_ITEM = -1
"""Fills a row of item numbers when fewer than k items are left; the score beside it is NaN."""
