"""Typed, immutable documents that are stored or exchanged between processes, a file for each.

This package needs neither torch nor the database, so that the API, the worker and the job process
share the same definitions.
"""
