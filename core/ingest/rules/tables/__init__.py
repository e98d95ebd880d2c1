"""Label tables: files that say which image has which label, one module for each kind."""
