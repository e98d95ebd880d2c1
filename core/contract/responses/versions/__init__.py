"""Responses about versions: their aliases, figures, comparisons and predictions."""
