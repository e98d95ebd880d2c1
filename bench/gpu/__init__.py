"""Measurements on an accelerator, for few minutes on a borrowed one: correct, fast, true."""
