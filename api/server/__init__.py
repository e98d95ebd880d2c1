"""The HTTP server around the application: connections, headers, metrics."""
