"""Download formats, a file each; `core.export.registry` lists them."""
