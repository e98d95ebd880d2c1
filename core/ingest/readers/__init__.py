"""Readers of uploaded archives, a file each; `core.ingest.readers.registry` lists them."""
