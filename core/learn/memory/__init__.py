"""Memories of past examples: reservoir samples that methods replay."""
