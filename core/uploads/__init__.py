"""Uploads in pieces: receive, read and remove them."""
