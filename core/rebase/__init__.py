"""Rebase of a model: learn its retained images on another base beside it."""
