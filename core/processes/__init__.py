"""Processes of this service: their start, helpers, messages and memory."""
