"""Export of a version's manifest and parts to a file that predicts without this project.

A format is a file in `formats/` and its line in `registry`. This package needs no database, store
or torch.
"""
