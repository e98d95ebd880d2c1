"""Ingest: an untrusted archive in, a checked uint8 dataset and a report out.

`sniff` and `inspect` look at the container before a batch is accepted; `ingest` decodes the images in
torch-free processes and writes the dataset. An upload format is a file in `readers/`. Nothing here knows the
database, the store or torch.
"""
