"""Export: a version's manifest and parts in, a file that answers without this project out.

A format is a file in `formats/` and its line in `registry`. Nothing here knows the database or the store, and
nothing imports torch.
"""
