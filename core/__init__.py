"""Perennial's core: everything that is true without HTTP and without Celery."""
