"""The worker for Celery, whatever the current directory: `celery -A perennial_service.celery_app`."""

from worker.celery_app import app

__all__ = ["app"]
