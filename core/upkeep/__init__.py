"""Upkeep of database and store: sweep, scrub, consistency check."""
