"""Claims of jobs in fair order."""
