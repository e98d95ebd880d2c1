"""Memories of past examples: replay buffers, exemplars and Gaussians that methods train on."""
