"""Bases that packages bring along: one for small images, one for photos."""
