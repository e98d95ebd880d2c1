"""Networks that are linear in their trained weights, and their derivatives."""
