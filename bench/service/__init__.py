"""Costs and limits of the service: requests, uploads, growth, and what all of it does at a million
rows.
"""
