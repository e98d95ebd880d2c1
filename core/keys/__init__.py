"""Access keys, keys of scope predict, and sessions of the pages."""
