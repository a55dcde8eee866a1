"""Histories in, top k and explanations out. Imports nothing itself: a device ranks where numba is absent."""
