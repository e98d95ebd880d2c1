"""Bases that models start from: uploaded, packaged, or pretrained weights by name."""
