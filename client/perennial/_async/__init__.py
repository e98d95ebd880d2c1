"""The asynchronous client. `python -m tools.client_sync` generates `perennial/_sync` from it."""
