"""The API for uvicorn, whatever the current directory.

uvicorn --factory perennial_service.asgi:create_app --http perennial_service.asgi:Connection
"""

from api.app import create_app
from api.server.connection import LimitedHttpConnection as Connection

__all__ = ["Connection", "create_app"]
