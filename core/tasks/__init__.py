"""Tasks: submission of a batch, its report, and decisions about it."""
