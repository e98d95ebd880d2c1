"""Limits checked before a job exists: parameters, memory, and what a recipe may do next."""
