"""All settings, read once from the environment (`PERENNIAL_…`).

Three URLs determine the size of the service: database, store and broker. Without them, everything
is in `PERENNIAL_DATA_DIR` on one machine.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from core.machine import count_usable_cpus, measure_machine_memory

GIB = 1 << 30


class Settings(BaseSettings):
    """Settings of the service. Every field is `PERENNIAL_<FIELD>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="PERENNIAL_", extra="ignore")

    data_dir: Annotated[Path, NoDecode] = Path("perennial-data")
    database_url: str = ""
    """`sqlite:///FILE` or `postgresql+psycopg://…`; empty: SQLite in the data directory."""
    database_password_file: Path | None = None
    """File with the password of the user in `database_url`, which must then have none."""
    store_url: str = ""
    """`file:///DIR` or `s3://HOST:PORT/BUCKET[/PREFIX]?secure=0&region=…`.

    If empty, the store is a folder in the data directory.
    """
    store_access_key: str = ""
    # Not a plain text, which would be shown wherever the settings are printed.
    store_secret_key: SecretStr = SecretStr("")
    store_secret_key_file: Path | None = None
    broker_url: str = ""
    """`redis://…`; empty: no broker, the worker polls."""
    broker_password_file: Path | None = None
    """File with the password of the broker in `broker_url`, which must then have none."""

    host: str = "127.0.0.1"
    port: int = 8000
    auth: Literal["on", "off"] = "on"

    metrics_port: int = Field(0, ge=0, le=65535)
    """Port on `host` where a worker serves its metrics to Prometheus; 0: none."""

    workers_per_host: int = Field(1, ge=1)
    """Workers that share the CPUs of this machine or container; see `threads`."""
    threads: int = Field(
        # One CPU remains for the processes that serve and decode.
        default_factory=lambda given: max(
            1, (count_usable_cpus() - 1) // given.get("workers_per_host", 1)
        ),
        ge=1,
    )
    """Threads of one learning job."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    ranks: int = Field(0, ge=0, le=8)
    """Processes that may share the slices of a batch (recipe `shards`); 0: one per CUDA device."""
    gpu_memory_share: float = Field(1.0, gt=0, le=1)
    """Share of a GPU's memory that one job may use; a half for each of two workers on one GPU."""
    lease_s: float = Field(60.0, gt=0)
    """Seconds for which a worker owns a job without a heartbeat; it beats six times as often."""
    poll_s: float = Field(0.5, gt=0)
    chores_s: float = Field(5.0, gt=0)
    snapshot_s: float = Field(30.0, gt=0)
    """Seconds between snapshots of a running job."""
    anytime_s: float = Field(10.0, gt=0)
    """Seconds between checks for a better state to download while a job with `anytime` runs."""
    stall_s: float = Field(600.0, gt=0)
    """Seconds without progress after which a job process is stopped."""
    grace_s: float = Field(30.0, gt=0)
    """Seconds that a job process has for an orderly stop."""

    max_body_bytes: int = 10 * GIB
    max_entries: int = 500_000
    max_unpacked_bytes: int = 64 * GIB
    max_image_pixels: int = 50_000_000
    max_classes: int = 10_000
    max_ratio: int = 100
    """Largest ratio of unpacked to packed bytes of an archive."""

    max_uploads: int = Field(16, ge=1)
    """Simultaneous uploads of one owner in one API process."""
    max_open_jobs: int = Field(1000, ge=1)
    """Unfinished jobs that one owner may have."""
    max_owner_bytes: int = Field(0, ge=0)
    """Bytes of one owner's bases, archives, datasets, versions and exports; 0: no limit."""
    max_requests_per_s: float = Field(0.0, ge=0)
    """Requests per second of one owner, with a burst of two seconds' worth; 0: no limit."""
    max_open_uploads: int = Field(100, ge=1)
    """Resumable uploads (`/v1/uploads`) of one owner that are neither used nor removed."""
    upload_hours: float = Field(24.0, gt=0, le=720)
    """Hours after its last byte until such an upload is removed."""
    upload_idle_s: float = Field(30.0, gt=0)
    """Seconds without data after which an upload is closed."""
    upload_min_rate: int = 1024
    """Bytes per second that an upload must reach on average after `upload_idle_s`."""

    verified_s: float = Field(3600.0, ge=0)
    """Seconds for which a process trusts an unchanged blob that it has hashed; 0: never."""
    scrub_bytes_per_s: int = Field(16 << 20, ge=0)
    """Bytes per second that the scrub of all workers together hashes again; 0: no scrub."""
    scrub_hours: float = Field(24.0, ge=0)
    """Hours between the starts of two whole scrubs.

    A longer scrub is followed by the next at once.
    """
    max_head_bytes: int = Field(64 << 10, ge=1024)
    """Bytes of a request's line and headers, and of the data between two chunks of its body."""
    max_headers: int = Field(100, ge=1)
    """Header fields of one request."""
    max_pipelined: int = Field(8, ge=0)
    """Requests of one connection that may wait for the current one, `max_head_bytes` in all."""
    head_s: float = Field(30.0, gt=0)
    """Seconds that a client has for the head of a request.

    They count from its first byte, on a new connection from the start of the connection.
    """
    keep_alive_s: float = Field(5.0, gt=0)
    """Seconds that a connection is kept open after a response until the next request begins."""
    send_idle_s: float = Field(150.0, gt=0)
    """Seconds that a response may wait for a client that reads nothing.

    See `api/server/delivery.py` before lowering it.
    """
    send_min_rate: int = Field(512, ge=1)
    """Bytes per second that a client must read of the waiting data in the long run."""
    owner_requests_shared: int = Field(1, ge=1)
    """Requests of one owner that an API process handles at once while other owners have some, too.

    A request that waits for its client, an upload, a prediction's images, an export or a base is
    not counted meanwhile.
    """
    owner_requests_alone: int = Field(32, ge=1)
    """The same while no other owner sends requests; fewer than the process's 40 threads."""
    max_connections: int = Field(1000, ge=1)
    """Connections of one API process; fewer if it has too few file descriptors (two for each)."""
    max_connections_per_address: int = Field(250, ge=1)
    """Connections of one address (IPv6: of a /64 network), and at most half of all."""
    reserved_descriptors: int = Field(64, ge=16)
    """File descriptors of an API process reserved for databases, files and rejections."""
    reserve_bytes: int = Field(32 << 20, ge=0)
    """Bytes reserved for deleting and cancelling on a full disk (`core/files/disk_reserve.py`); 0: none."""
    trusted_proxies: str = ""
    """Addresses and networks of the reverse proxies in front of the API, separated by commas.

    Limits then apply to the client that they name in X-Forwarded-For instead of to them.
    """
    predict_body_bytes: int = Field(64 << 20, ge=1)
    """Bytes of the body of one prediction."""
    predict_array_bytes: int = Field(16 << 20, ge=1)
    """The same for images as nested arrays in JSON, which take far longer to read than files."""
    predict_requests: int = Field(256, ge=1)
    """Simultaneous predictions of one API process."""
    predict_bytes: int = Field(256 << 20, ge=1)
    """Bytes of their bodies and responses in memory at once."""
    predict_owner_requests: int = Field(32, ge=1)
    """Simultaneous predictions of one owner."""
    predict_owner_bytes: int = Field(64 << 20, ge=1)
    """Bytes of one owner's predictions in memory; the rest of `predict_bytes` is for others."""
    predict_decoders: int = Field(2, ge=1)
    """Processes that decode images for predictions.

    An owner may use those that nobody else needs.
    """
    predict_image_s: float = Field(5.0, gt=0)
    """Seconds for decoding one image of a prediction; 16 million pixels of noise take one."""
    predict_decode_s: float = Field(20.0, gt=0)
    """Seconds for decoding all images of one prediction."""
    predict_turn_s: float = Field(0.5, gt=0)
    """Seconds after which a request lets other owners' requests run, at its next image."""
    predict_origins: str = ""
    """Origins, separated by commas, whose pages may request predictions: `https://shop.example`."""
    predict_answer_s: float = Field(30.0, gt=0)
    """Seconds after which a predict helper is stopped if a turn or a load has not finished."""
    predict_max_top_k: int = Field(1000, ge=1)
    """Labels that a prediction may request for each image."""
    predict_max_labels: int = Field(10_000, ge=1)
    """Labels in one response, over all of its images."""
    max_parameters: int = Field(1_000_000_000, ge=0)
    """Parameters of a model's network, with those of all its tasks; 0: no limit."""
    job_memory_bytes: int | None = Field(None, ge=0)
    """Memory of one learning job in bytes, the host's and the GPU's together; 0: no limit.

    None means three quarters of this machine's memory. If workers are elsewhere (a broker is set),
    None lets the API admit jobs of any size.
    """
    max_job_s: float = Field(7 * 86_400.0, ge=0)
    """Seconds that a job may run, over all attempts since its last retry; 0: no limit.

    Pauses do not count.
    """
    shape_helpers: int = Field(2, ge=1)
    """Processes at once that compute the expected tensors of uploaded bases; one per owner."""
    export_builds: int = Field(2, ge=1)
    """Downloads that one API process makes at once; one per owner."""

    max_export_s: float = Field(600.0, gt=0)
    """Seconds that a job may take to make a download (format=onnx), over all its attempts."""
    max_exports: int = Field(1, ge=1)
    """Jobs that make a download at once, of all workers together; the others learn meanwhile."""

    hub: Literal["on", "off"] = "on"
    """`on` fetches pretrained weights from the Hugging Face Hub, `off` uses only stored ones."""
    default_base: Literal["perennial/efficientnet-lite0", "perennial/resnet20-cifar100"] = (
        "perennial/efficientnet-lite0"
    )
    """Base of a new model that names no architecture, base or image size.

    It is used for models that train only their heads.
    """
    max_fetch_bytes: int = Field(8 * GIB, ge=1)
    """Bytes of pretrained weights, and of all unfinished downloads on a worker's machine."""
    max_fetches: int = Field(2, ge=1)
    """Downloads of pretrained weights at once, of all workers together."""

    webhook_key_file: Path | None = None
    """Key file from which webhook secrets are derived, the same for the API and all workers.

    None means `webhook-key` in the data directory, made on first use; this needs a service without
    a broker.
    """
    webhook_allow: str = ""
    """Networks, separated by commas, that webhooks may also reach, even by http://."""
    public_url: str = ""
    """URL of the pages, as https://perennial.example.org, for links in Slack and Teams messages."""
    max_webhooks: int = Field(20, ge=1)
    """Webhooks of one owner."""

    failed_days: float = 7.0
    export_days: float = 7.0
    delivery_days: float = 7.0
    """Days for which finished webhook deliveries are retained."""
    event_days: float = 90.0

    @field_validator("trusted_proxies", "webhook_allow")
    @classmethod
    def _validate_networks(cls, value: str) -> str:
        for part in filter(None, (part.strip() for part in value.split(","))):
            ipaddress.ip_network(part, strict=False)  # raises ValueError with the reason
        return value

    @field_validator("public_url")
    @classmethod
    def _validate_public_url(cls, value: str) -> str:
        parts = urlsplit(value)
        is_address = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment)
        )
        # The URL goes into messages, whose readers would see a password in it.
        if value and (not is_address or "@" in parts.netloc):
            raise ValueError(f"{value!r} is not such as https://perennial.example.org")
        # Links append paths that begin with a slash.
        return value.rstrip("/")

    @field_validator("predict_origins")
    @classmethod
    def _validate_origins(cls, value: str, info: ValidationInfo) -> str:
        origins = [_parse_origin(part.strip()) for part in value.split(",") if part.strip()]
        # `info.data` has only the fields above, so `auth` must be declared before this field.
        if origins and info.data.get("auth") == "off":
            raise ValueError(
                "pages of other sites need keys: with PERENNIAL_AUTH=off none of them is answered."
            )
        return ",".join(origins)

    @property
    def allowed_origins(self) -> frozenset[str]:
        """Origins (scheme, host and port) whose web pages may request predictions."""
        return frozenset(filter(None, self.predict_origins.split(",")))

    @property
    def resolved_database_url(self) -> str:
        """URL of the database with its password; SQLite in the data directory by default."""
        url = self.database_url or f"sqlite:///{self.data_dir.absolute() / 'perennial.db'}"
        return _add_password_from_file(url, self.database_password_file, "DATABASE")

    @property
    def resolved_store_url(self) -> str:
        """URL of the object store; a folder of the data directory by default."""
        return self.store_url or f"file://{self.data_dir.absolute() / 'store'}"

    @property
    def broker_url_with_password(self) -> str:
        """URL of the message broker with its password; empty without a broker."""
        return _add_password_from_file(self.broker_url, self.broker_password_file, "BROKER")

    @property
    def resolved_store_secret_key(self) -> str:
        """Secret key of the S3 object store, from the setting or from its file."""
        if self.store_secret_key_file is not None:
            return self.store_secret_key_file.read_text().strip()
        return self.store_secret_key.get_secret_value()

    @property
    def usable_job_memory_bytes(self) -> int:
        """Bytes of memory that a job on this machine may use; 0: no limit."""
        return (
            3 * measure_machine_memory() // 4
            if self.job_memory_bytes is None
            else self.job_memory_bytes
        )

    @property
    def max_admitted_job_memory_bytes(self) -> int:
        """Largest memory estimate in bytes with which a job is accepted; 0: no limit."""
        return (
            self.usable_job_memory_bytes
            if self.is_brokerless or self.job_memory_bytes is not None
            else 0
        )

    @property
    def is_brokerless(self) -> bool:
        """True without a message broker: everything is on one machine, and the worker polls."""
        return not self.broker_url

    def make_folder(self, name: str) -> Path:
        """Return a private folder in the data directory (`spool`, `work` …), created if missing."""
        path = self.data_dir.absolute() / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


def _parse_origin(text: str) -> str:
    """Return a web origin as browsers send it: in lower case, without its scheme's default port.

    Raises:
        ValueError: the text is not an origin, or stands for several.
    """
    advice = "PERENNIAL_PREDICT_ORIGINS lists whole origins, such as https://shop.example,https://shop.example:8443"
    if "*" in text:
        raise ValueError(f"{text!r} stands for any page, whoever made it: {advice}.")
    match = re.fullmatch(
        r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", text.lower()
    )
    if match is None or (match[3] is not None and not 0 < int(match[3]) <= 65535):
        raise ValueError(
            f"{text!r} is no origin (http or https, a host, perhaps a port, and no path): {advice}."
        )
    default_port = {"http": "80", "https": "443"}[match[1]]
    return (
        f"{match[1]}://{match[2]}"
        if match[3] in (None, default_port)
        # Through int, because browsers send a port without leading zeros.
        else f"{match[1]}://{match[2]}:{int(match[3])}"
    )


def _add_password_from_file(url: str, file: Path | None, what: str) -> str:
    """Return a URL with the password read from a file.

    Raises:
        ValueError: the URL already has a password or has no host, or the file is empty. The message
            repeats neither.
    """
    if file is None or not url:
        return url
    parts = urlsplit(url)
    if not parts.hostname or parts.password is not None:
        raise ValueError(
            f"PERENNIAL_{what}_PASSWORD_FILE needs a PERENNIAL_{what}_URL with a host and without "
            f"a password."
        )
    password = file.read_text().strip()
    if not password:
        raise ValueError(f"The file that PERENNIAL_{what}_PASSWORD_FILE names is empty.")
    # Quoted below, because a password may have the characters that end this part of a URL.
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
