"""Download formats, one file each; `core.export.registry` lists them."""
