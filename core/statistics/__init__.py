"""The accuracy matrix and tests on counts, as pure functions."""
