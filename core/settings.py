"""All settings, read once from the environment (`PERENNIAL_…`).

Three URLs choose the size of the service: database, store, broker. With none set everything lives in
`PERENNIAL_DATA_DIR` on one machine.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from core.machine import memory_bytes, usable_cpus

GIB = 1 << 30


class Settings(BaseSettings):
    """The service's settings; every field is `PERENNIAL_<FIELD>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="PERENNIAL_", extra="ignore")

    data_dir: Annotated[Path, NoDecode] = Path("perennial-data")
    database_url: str = ""
    """`sqlite:///FILE` or `postgresql+psycopg://…`; empty: SQLite in the data directory."""
    database_password_file: Path | None = None
    """Holds the password of the user in `database_url`, which then has none."""
    store_url: str = ""
    """`file:///DIR` or `s3://HOST:PORT/BUCKET[/PREFIX]?secure=0&region=…`; empty: a folder there."""
    store_access_key: str = ""
    store_secret_key: SecretStr = SecretStr("")
    store_secret_key_file: Path | None = None
    broker_url: str = ""
    """`redis://…`; empty: no broker, the worker polls."""
    broker_password_file: Path | None = None
    """Holds the password of the broker in `broker_url`, which then has none."""

    host: str = "127.0.0.1"
    port: int = 8000
    auth: Literal["on", "off"] = "on"

    metrics_port: int = Field(0, ge=0, le=65535)
    """Where a worker shows its figures to Prometheus, on `host`; 0: nowhere."""

    workers_per_host: int = Field(1, ge=1)
    """Workers that share this machine's, or this container's, CPUs: `threads` is by default a share of them."""
    threads: int = Field(
        default_factory=lambda given: max(1, (usable_cpus() - 1) // given.get("workers_per_host", 1)), ge=1
    )
    """Threads of one learning job."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    ranks: int = Field(0, ge=0, le=8)
    """Processes that may share the slices of a batch (recipe `shards`); 0: as many as there are CUDA devices."""
    gpu_memory_share: float = Field(1.0, gt=0, le=1)
    """Share of a GPU's memory that one job may take; half for each of two workers on one GPU."""
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
    max_image_pixels: int = 50_000_000
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
    max_open_uploads: int = Field(100, ge=1)
    """Uploads that can be resumed (`/v1/uploads`) that one owner may have begun and neither used nor removed."""
    upload_hours: float = Field(24.0, gt=0, le=720)
    """Hours after its last byte until such an upload is removed."""
    upload_idle_s: float = Field(30.0, gt=0)
    """An upload from which nothing comes for so long is ended."""
    upload_min_rate: int = 1024
    """Bytes per second that an upload must reach on average after `upload_idle_s`."""

    verified_s: float = Field(3600.0, ge=0)
    """Seconds for which a process trusts a stored blob that it has hashed, unless somebody writes to it; 0: never."""
    scrub_bytes_per_s: int = Field(16 << 20, ge=0)
    """Bytes per second of the scrub, which hashes all stored objects again, of all workers together; 0: no scrub."""
    scrub_hours: float = Field(24.0, ge=0)
    """Hours between the begins of two whole scrubs; a store that takes longer is scrubbed without a pause."""
    max_head_bytes: int = Field(64 << 10, ge=1024)
    """Bytes of a request's line and headers; also of what stands between two pieces of its body."""
    max_headers: int = Field(100, ge=1)
    """Header fields of one request."""
    max_pipelined: int = Field(8, ge=0)
    """Requests of one connection that may wait while another one is answered, of `max_head_bytes` in all."""
    head_s: float = Field(30.0, gt=0)
    """How long a client may take from its first byte (on a new connection, from its coming) to the end of a head."""
    keep_alive_s: float = Field(5.0, gt=0)
    """How long a connection is kept after an answer until the next request begins."""
    send_idle_s: float = Field(150.0, gt=0)
    """How long an answer may wait for a client that takes nothing of it (see `api/delivery.py` before it is less)."""
    send_min_rate: int = Field(512, ge=1)
    """Bytes per second that a client must take in the long run of what waits for it."""
    owner_requests_shared: int = Field(1, ge=1)
    """Requests of one owner that an API process works on at once while other owners ask too. One that waits for its
    client, an upload, a prediction's images, an export or a base is not counted meanwhile."""
    owner_requests_alone: int = Field(32, ge=1)
    """The same while nobody else asks; fewer than the process's 40 threads."""
    max_connections: int = Field(1000, ge=1)
    """Connections of one API process; fewer where it may have too few file descriptors (two for each)."""
    max_connections_per_address: int = Field(250, ge=1)
    """Connections of one address (IPv6: of a /64 network), and at most half of all."""
    reserved_descriptors: int = Field(64, ge=16)
    """File descriptors of an API process that no connection takes, for databases, files and refusals."""
    reserve_bytes: int = Field(32 << 20, ge=0)
    """Room kept in the data directory for deleting and cancelling on a full disk (`core/reserve.py`); 0: none."""
    trusted_proxies: str = ""
    """Addresses and networks of the reverse proxies before the API, separated by commas: not they are counted, but
    the client that they name in X-Forwarded-For."""
    predict_body_bytes: int = Field(64 << 20, ge=1)
    """Bytes that the body of one prediction may have."""
    predict_array_bytes: int = Field(16 << 20, ge=1)
    """The same where images come as nested arrays in JSON, which take far longer to read than files."""
    predict_requests: int = Field(256, ge=1)
    """Predictions that one API process has under way at once."""
    predict_bytes: int = Field(256 << 20, ge=1)
    """Bytes of their bodies and answers that it keeps in memory at once."""
    predict_owner_requests: int = Field(32, ge=1)
    """The same of one owner: requests."""
    predict_owner_bytes: int = Field(64 << 20, ge=1)
    """The same of one owner: bytes. An owner who has them all leaves room for the others."""
    predict_decoders: int = Field(2, ge=1)
    """Processes that decode images for predictions; an owner has those that nobody else waits for."""
    predict_image_s: float = Field(5.0, gt=0)
    """Seconds that decoding one image of a prediction may take; 16 million pixels of noise take one."""
    predict_decode_s: float = Field(20.0, gt=0)
    """Seconds that decoding all images of one prediction may take."""
    predict_turn_s: float = Field(0.5, gt=0)
    """Seconds after which a request lets other owners' requests pass, at its next image."""
    predict_origins: str = ""
    """Origins, separated by commas, whose pages may ask for predictions, such as `https://shop.example`."""
    predict_answer_s: float = Field(30.0, gt=0)
    """A predict helper that takes longer for one turn, or to load a version, is ended."""
    predict_max_top_k: int = Field(1000, ge=1)
    """Labels that a prediction may ask for each image."""
    predict_max_labels: int = Field(10_000, ge=1)
    """Labels that one answer may hold, over all of its images."""
    max_parameters: int = Field(1_000_000_000, ge=0)
    """Of a model's network, those of all its tasks together; 0: no limit."""
    job_memory_bytes: int | None = Field(None, ge=0)
    """Memory that one learning job may take, the host's and the GPU's together; 0: no limit. None: three
    quarters of this machine's memory. Where workers are elsewhere (a broker is set) None lets the API admit
    jobs of any size."""
    max_job_s: float = Field(7 * 86_400.0, ge=0)
    """How long a job may run, over all its attempts since it was last retried, without pauses; 0: no limit."""
    shape_helpers: int = Field(2, ge=1)
    """Processes at once that say for the API what an uploaded base must hold; one of each owner."""
    export_builds: int = Field(2, ge=1)
    """Downloads that one API process makes at once; one of each owner."""

    max_export_s: float = Field(600.0, gt=0)
    """How long a job may take to make a download (format=onnx), over all its attempts."""
    max_exports: int = Field(1, ge=1)
    """Such jobs at once, of all workers together: the others learn meanwhile."""

    hub: Literal["on", "off"] = "on"
    """Whether pretrained weights are fetched from the Hugging Face Hub; off: only what is in the store
    already."""
    default_base: Literal["perennial/efficientnet-lite0", "perennial/resnet20-cifar100"] = (
        "perennial/efficientnet-lite0"
    )
    """The base of a new model that names no architecture, base or image size, and does not train its backbone."""
    max_fetch_bytes: int = Field(8 * GIB, ge=1)
    """Of pretrained weights; also of all unfinished downloads that a worker's machine keeps."""
    max_fetches: int = Field(2, ge=1)
    """Downloads of pretrained weights at once, of all workers together."""

    webhook_key_file: Path | None = None
    """Of which the secrets of webhooks are made, the same file for the API and all workers. None:
    `webhook-key` in the data directory, made at first use; only without a broker."""
    webhook_allow: str = ""
    """Networks, separated by commas, that webhooks may reach beside the public Internet, also by http://."""
    public_url: str = ""
    """Where people reach the pages, such as https://perennial.example.org: messages to Slack and Teams link there."""
    max_webhooks: int = Field(20, ge=1)
    """Webhooks of one owner."""

    failed_days: float = 7.0
    export_days: float = 7.0
    delivery_days: float = 7.0
    """Days for which deliveries of webhooks are kept once they are over."""
    event_days: float = 90.0

    @field_validator("trusted_proxies", "webhook_allow")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        for part in filter(None, (part.strip() for part in value.split(","))):
            ipaddress.ip_network(part, strict=False)  # says what is wrong with it
        return value

    @field_validator("public_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        is_address = (
            parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        )
        if value and (not is_address or "@" in parts.netloc):
            raise ValueError(f"{value!r} is not such as https://perennial.example.org")
        return value.rstrip("/")

    @field_validator("predict_origins")
    @classmethod
    def _are_origins(cls, value: str, info: ValidationInfo) -> str:
        origins = [_origin(part.strip()) for part in value.split(",") if part.strip()]
        if origins and info.data.get("auth") == "off":
            raise ValueError(
                "pages of other sites need keys: with PERENNIAL_AUTH=off none of them is answered."
            )
        return ",".join(origins)

    @property
    def allowed_origins(self) -> frozenset[str]:
        """Origins whose pages may ask for predictions."""
        return frozenset(filter(None, self.predict_origins.split(",")))

    @property
    def resolved_database_url(self) -> str:
        """The database's URL with its password; a file of the data directory where none is set."""
        url = self.database_url or f"sqlite:///{self.data_dir.absolute() / 'perennial.db'}"
        return _with_password(url, self.database_password_file, "DATABASE")

    @property
    def resolved_store_url(self) -> str:
        """The URL of the store; a folder of the data directory where none is set."""
        return self.store_url or f"file://{self.data_dir.absolute() / 'store'}"

    @property
    def resolved_broker_url(self) -> str:
        """The broker's URL with its password; empty without a broker."""
        return _with_password(self.broker_url, self.broker_password_file, "BROKER")

    @property
    def secret_key(self) -> str:
        """The store's secret key, from the setting or from the file that holds it."""
        if self.store_secret_key_file is not None:
            return self.store_secret_key_file.read_text().strip()
        return self.store_secret_key.get_secret_value()

    @property
    def job_bytes(self) -> int:
        """What a worker here lets a job take; 0: no limit."""
        return 3 * memory_bytes() // 4 if self.job_memory_bytes is None else self.job_memory_bytes

    @property
    def admitted_job_bytes(self) -> int:
        """What the estimate of a job may be for it to be admitted; 0: no limit."""
        return self.job_bytes if self.embedded or self.job_memory_bytes is not None else 0

    @property
    def embedded(self) -> bool:
        """Whether the job queue has no broker: one machine, the worker polls."""
        return not self.broker_url

    def folder(self, name: str) -> Path:
        """A folder under the data directory, made when missing (`spool`, `work`, `cache` …), its user's alone."""
        path = self.data_dir.absolute() / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


def _origin(text: str) -> str:
    """An origin as browsers send it: in lower case, without the port that its scheme has anyway.

    Raises:
        ValueError: it is none, or stands for several.
    """
    advice = "PERENNIAL_PREDICT_ORIGINS lists whole origins, such as https://shop.example,https://shop.example:8443"
    if "*" in text:
        raise ValueError(f"{text!r} stands for any page, whoever made it: {advice}.")
    found = re.fullmatch(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", text.lower())
    if found is None or (found[3] is not None and not 0 < int(found[3]) <= 65535):
        raise ValueError(
            f"{text!r} is no origin (http or https, a host, perhaps a port, and no path): {advice}."
        )
    usual = {"http": "80", "https": "443"}[found[1]]
    return (
        f"{found[1]}://{found[2]}"
        if found[3] in (None, usual)
        else f"{found[1]}://{found[2]}:{int(found[3])}"
    )


def _with_password(url: str, file: Path | None, what: str) -> str:
    """A URL with the password that a file holds, without the line break at its end.

    Raises:
        ValueError: the URL has a password already or names no host, or the file is empty; it never repeats either.
    """
    if file is None or not url:
        return url
    parts = urlsplit(url)
    if not parts.hostname or parts.password is not None:
        raise ValueError(
            f"PERENNIAL_{what}_PASSWORD_FILE needs a PERENNIAL_{what}_URL with a host and without a password."
        )
    password = file.read_text().strip()
    if not password:
        raise ValueError(f"The file that PERENNIAL_{what}_PASSWORD_FILE names is empty.")
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
