"""Where P = A⁻¹ is computed: in memory, on disk, or on a device through torch."""
