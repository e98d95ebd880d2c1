"""Measurements of reading batches."""
