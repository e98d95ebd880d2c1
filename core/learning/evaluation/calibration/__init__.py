"""Calibrated probabilities: one temperature for a version, and the error of its probabilities.

1. `held_out`: the logits of a version on held-out images of all tasks, as many as fit into memory.

2. `temperature`: the number that logits are divided by, fitted to them or from another source.

3. `error`: the calibration error of the resulting probabilities.
"""
