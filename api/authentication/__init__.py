"""The caller of a request: keys, sessions, and the checks in front of every route."""
