"""Continual-learning methods, one file each; `registry.py` lists them by name."""
