"""Routes about the service and its keys rather than about models."""
