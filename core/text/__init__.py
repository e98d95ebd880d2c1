"""Texts for people: counts, nearest names, and requirements in words."""
