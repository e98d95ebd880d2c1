"""PostgreSQL, Redis and S3 of one's own, to be hurt; PostgreSQL and redis-server must be
installed.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import postgresql
import redis_server
import s3_server


@dataclass
class Servers:
    """The servers that a large service stands on."""

    postgres: postgresql.Cluster
    redis: redis_server.RedisServer
    s3: s3_server.S3Server

    def environment(self) -> dict[str, str]:
        """The settings that name them."""
        return {
            **self.s3.environment(),
            "PERENNIAL_DATABASE_URL": self.postgres.url,
            "PERENNIAL_BROKER_URL": self.redis.url,
        }


@contextmanager
def run_servers(folder: Path) -> Iterator[Servers]:
    """Start the servers, and remove them afterwards with all data.

    Args:
        folder: holds PostgreSQL's.
    """
    with ExitStack() as stack:
        postgres = postgresql.Cluster(folder)
        stack.callback(postgres.close)
        postgres.start()
        redis = redis_server.RedisServer()
        stack.callback(redis.close)
        redis.start()
        s3 = s3_server.S3Server.launch()
        stack.callback(s3.close)
        yield Servers(postgres, redis, s3)
