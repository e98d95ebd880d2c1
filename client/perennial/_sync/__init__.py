"""The client that blocks: made of `perennial/_async` by `python -m tools.client_sync`, but for `waiting.py`."""
