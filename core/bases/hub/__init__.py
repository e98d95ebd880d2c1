"""Download of pretrained weights from the Hugging Face Hub: the downloading process, its
supervision, and unfinished files.
"""
