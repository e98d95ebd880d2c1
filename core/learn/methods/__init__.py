"""The methods, a file each; `registry.py` knows them by name."""
