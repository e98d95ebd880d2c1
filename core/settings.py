"""All settings, read once from the environment (`PERENNIAL_…`).

Three URLs choose the size of the service: database, store, broker. With none set everything lives in
`PERENNIAL_DATA_DIR` on one machine.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

GIB = 1 << 30


class Settings(BaseSettings):
    """The service's settings; every field is `PERENNIAL_<FIELD>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="PERENNIAL_", extra="ignore")

    data_dir: Annotated[Path, NoDecode] = Path("perennial-data")
    database_url: str = ""
    """`sqlite:///FILE` or `postgresql+psycopg://…`; empty: SQLite in the data directory."""
    store_url: str = ""
    """`file:///DIR` or `s3://HOST:PORT/BUCKET[/PREFIX]?secure=0&region=…`; empty: a folder there."""
    store_access_key: str = ""
    store_secret_key: SecretStr = SecretStr("")
    store_secret_key_file: Path | None = None
    broker_url: str = ""
    """`redis://…`; empty: no broker, the worker polls."""

    host: str = "127.0.0.1"
    port: int = 8000
    auth: Literal["on", "off"] = "on"

    metrics_port: int = Field(0, ge=0, le=65535)
    """Where a worker shows its figures to Prometheus, on `host`; 0: nowhere."""

    threads: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 1) - 1), ge=1)
    """Threads of one learning job."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    lease_s: float = Field(60.0, gt=0)
    """How long a worker owns a job without a heartbeat; it beats every sixth of it."""
    poll_s: float = Field(0.5, gt=0)
    chores_s: float = Field(5.0, gt=0)
    snapshot_s: float = Field(30.0, gt=0)
    """Seconds between snapshots of a running job."""
    anytime_s: float = Field(10.0, gt=0)
    """Seconds between looks for a better state to download while a job runs (recipes with `anytime`)."""
    stall_s: float = Field(600.0, gt=0)
    """A job child without progress for so long is ended."""
    grace_s: float = Field(30.0, gt=0)
    """How long a job child may take to stop in order."""

    max_body_bytes: int = 10 * GIB
    max_entries: int = 500_000
    max_unpacked_bytes: int = 64 * GIB
    max_image_pixels: int = 4096 * 4096
    max_classes: int = 10_000
    max_ratio: int = 100
    """Largest ratio of unpacked to packed bytes of an archive."""

    max_uploads: int = Field(16, ge=1)
    """Uploads that one owner may have under way at once in one API process."""
    max_open_jobs: int = Field(1000, ge=1)
    """Unfinished jobs that one owner may have."""
    max_owner_bytes: int = Field(0, ge=0)
    """Bytes that one owner's bases, archives, datasets, versions and exports may take; 0: no limit."""
    max_requests_per_s: float = Field(0.0, ge=0)
    """Requests per second that one owner may make, with two seconds' worth at once; 0: no limit."""
    upload_idle_s: float = Field(30.0, gt=0)
    """An upload from which nothing comes for so long is ended."""
    upload_min_rate: int = 1024
    """Bytes per second that an upload must reach on average after `upload_idle_s`."""

    failed_days: float = 7.0
    export_days: float = 7.0
    event_days: float = 90.0

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'perennial.db'}"

    @property
    def resolved_store_url(self) -> str:
        return self.store_url or f"file://{self.data_dir.absolute() / 'store'}"

    @property
    def secret_key(self) -> str:
        """The store's secret key, from the setting or from the file that holds it."""
        if self.store_secret_key_file is not None:
            return self.store_secret_key_file.read_text().strip()
        return self.store_secret_key.get_secret_value()

    @property
    def embedded(self) -> bool:
        """Whether the job queue has no broker: one machine, the worker polls."""
        return not self.broker_url

    def folder(self, name: str) -> Path:
        """A folder under the data directory, made when missing (`spool`, `work`, `cache` …)."""
        path = self.data_dir.absolute() / name
        path.mkdir(parents=True, exist_ok=True)
        return path
