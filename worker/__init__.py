"""Processes that claim jobs, start their children and supervise them."""

from core.platforms import require_supported_platform

# Before a module is imported that Windows lacks.
require_supported_platform()
