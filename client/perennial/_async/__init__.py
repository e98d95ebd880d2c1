"""The client to await. `perennial/_sync` is made of it by `python -m tools.client_sync`."""
