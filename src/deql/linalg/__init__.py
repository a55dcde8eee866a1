"""From a Gram matrix plus a diagonal to P = A⁻¹, knowing nothing of the models that use it.

Packages on the way to the torch engine import nothing themselves: it runs where SciPy and numba are absent.
"""
