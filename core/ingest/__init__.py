"""Ingest: conversion of an untrusted archive to a checked uint8 dataset and a report.

`sniff` and `inspect` examine the container before a batch is accepted. `ingest` decodes the images
in processes without torch and writes the dataset. An upload format is a file in `readers/`. This
package needs neither the database, the store nor torch.
"""
