"""Measurements: each prints a ratio against a reference that runs beside it. Never part of the
tests.
"""
