"""The command line `perennial`."""
