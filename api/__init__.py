"""HTTP: routes, pages and limits, without decisions and without torch."""

from core.platforms import require_supported_platform

# Before a module is imported that Windows lacks.
require_supported_platform()
