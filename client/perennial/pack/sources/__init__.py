"""Sources of a batch, one file per kind; `pack.kinds` lists them."""
