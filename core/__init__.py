"""Core logic of Perennial, independent of HTTP and of Celery."""
