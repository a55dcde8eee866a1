"""The torch engine: Gram matrix, inverse, scores and metrics on one device.

Its modules need torch and NumPy alone: hosts with a GPU often lack the rest.
"""

from deql.device.packed import DevicePacked, open_device

__all__ = ["DevicePacked", "open_device"]
