"""Versions: their aliases, figures, history and downloads."""
