"""Webhook secrets and signatures, as in Standard Webhooks (github.com/standard-webhooks).

Secrets are not stored. Each use derives the secret from the service's key file and the webhook's id
with HMAC-SHA-256, so that a copy of the database cannot sign anything. The database has the
secret's digest, which reveals a different key file.
"""

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from core.errors import WebhooksNotSetUp
from core.settings import Settings

KEY_NAME = "webhook-key"
PREFIX = "whsec_"
MIN_KEY_BYTES = 32


def load_or_create_webhook_key(settings: Settings) -> bytes:
    """Load the key from which webhook secrets are derived; on one machine it is made on first use.

    Raises:
        WebhooksNotSetUp: several machines have no common key, or the file cannot be read or is
            too short.
    """
    path = settings.webhook_key_file
    if path is None and not settings.is_brokerless:
        raise WebhooksNotSetUp(
            "Webhooks need a key that the API and all workers have: whoever runs the service gives "
            "each of them the same file in PERENNIAL_WEBHOOK_KEY_FILE (`openssl rand -hex 32`)."
        )
    if path is None:
        path = settings.data_dir.absolute() / KEY_NAME
        _make_webhook_key_file(path)
    try:
        # Editors and `openssl rand` end the file with a line break.
        content = path.read_bytes().strip()
    except OSError as error:
        raise WebhooksNotSetUp(
            f"The key file of webhooks cannot be read: {error.strerror or error}."
        ) from None
    if len(content) < MIN_KEY_BYTES:
        raise WebhooksNotSetUp(
            f"The key file of webhooks is too short: it holds {MIN_KEY_BYTES} bytes or more."
        )
    return content


def derive_webhook_secret(key: bytes, webhook_id: str, generation: int) -> str:
    """Derive the secret of a webhook from the key: `whsec_` and 32 bytes in base64."""
    # With the generation, so that a rotation makes another secret of the same key.
    raw = hmac.digest(key, f"webhook {webhook_id} {generation}".encode(), "sha256")
    return PREFIX + base64.b64encode(raw).decode()


def hash_webhook_secret(secret: str) -> str:
    """Hash a webhook secret for the database: sha256 in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def sign_delivery_body(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """Sign a webhook delivery: `v1,` and the HMAC-SHA-256 of id, time and body, in base64."""
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    code = hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), signed, "sha256")
    return f"v1,{base64.b64encode(code).decode()}"


def build_changed_webhook_key_error() -> WebhooksNotSetUp:
    """Build the error for a derived webhook secret that differs from the one given to the user."""
    return WebhooksNotSetUp(
        "The service's key file of webhooks is not the one with which this webhook was made: "
        "whoever runs the service puts that one back, or the webhook is rotated."
    )


def _make_webhook_key_file(path: Path) -> None:
    """Create the webhook key file if there is none; of several processes, the first one's file
    stays.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            # If a crash lost the key, all secrets that were given out would be void.
            os.fsync(file.fileno())
        # A link fails if the file exists, where a rename would replace another process's key.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)
