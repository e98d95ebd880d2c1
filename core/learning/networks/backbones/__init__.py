"""Backbones, one file per family; `networks.registry` lists them by name."""
