"""Requests to addresses that somebody else chose, limited to the public Internet."""
