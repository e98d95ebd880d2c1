"""Readers of uploaded archives, one file each; `core.ingest.readers.registry` lists them."""
