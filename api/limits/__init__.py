"""Limits per owner and key: rates, turns, and work at the same time."""
