"""Stored bytes and counts of owners and models, and their quotas."""
