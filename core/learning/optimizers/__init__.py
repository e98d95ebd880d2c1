"""Optimizers built from recipes, with parameters and state known by name."""
