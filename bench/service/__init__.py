"""What the service costs and bears: requests, uploads, growth, and what all of it does at a million
rows.
"""
