"""Comparisons of two versions on the same images."""
