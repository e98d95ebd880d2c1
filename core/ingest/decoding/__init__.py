"""Decoding of images in processes of their own, into square uint8 arrays."""
