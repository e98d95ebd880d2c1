"""Core logic of Perennial, independent of HTTP and of Celery."""

from core.platforms import require_supported_platform

# Here, because every program of the service imports this package, and many modules of it import
# parts of the standard library that Windows lacks.
require_supported_platform()
