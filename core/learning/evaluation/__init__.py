"""Measurements of versions: accuracy, features, baselines, and stored predictions."""
