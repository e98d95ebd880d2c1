"""Predictions of versions; `helper` holds the processes with torch."""
