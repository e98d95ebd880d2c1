"""One step in slices of its batch, on one process or on several that each have a device."""
