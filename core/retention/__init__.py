"""Stored files that are in use, damaged or over, and their deletion."""
