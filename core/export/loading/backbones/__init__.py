"""Backbones by family of architectures: `Backbone(tensors)`."""
