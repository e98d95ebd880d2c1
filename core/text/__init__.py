"""Texts for people: allowed characters, nearest names, requirements and next steps in words."""
