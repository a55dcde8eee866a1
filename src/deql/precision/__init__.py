"""From a Gram matrix plus a diagonal to P = A⁻¹, knowing nothing of the models that use it."""

from deql.precision.invert import LARGEST_RESIDUAL, invert
from deql.precision.packed import PackedSymmetric
from deql.precision.plan import choose_tile
from deql.precision.sweep import sweep

# Nothing here may import more than NumPy: the device engine runs where SciPy and numba are absent.
__all__ = ["LARGEST_RESIDUAL", "PackedSymmetric", "choose_tile", "invert", "sweep"]
