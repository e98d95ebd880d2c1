"""Findings about the images of a batch: equal, nearly equal and contradicting ones."""
