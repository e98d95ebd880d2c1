"""The verbs by noun."""
