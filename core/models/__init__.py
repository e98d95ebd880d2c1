"""Models: create, list, change and delete them, and what waits for a person."""
