"""One training step in slices of its batch, on one process or on several with a device each."""
