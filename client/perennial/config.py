"""URL of the service, and the key for it.

The first source that has a value wins: an argument; `PERENNIAL_URL` and `PERENNIAL_API_KEY`; the
profile (`--profile`, `PERENNIAL_PROFILE`, else `default`) in `config.toml` in the user's
configuration folder; for a local service, `perennial-data/admin-key` in the working directory.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from perennial.errors import ConfigError, NoKey

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_PROFILE = "default"
LOCAL_KEY = Path("perennial-data") / "admin-key"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OWN_PATHS = frozenset({"ui", "v1", "docs", "openapi.json", "healthz", "readyz", "metrics"})
"""First segments of the service's own paths, which are removed from URLs copied from a browser."""
IN_KEYRING = "keyring"
"""Placeholder in the file for a key that is in the system's keyring."""
SERVICE_NAME = "perennial"


@dataclass(frozen=True)
class ServiceConnection:
    """URL and API key of the service to connect to.

    Attributes:
        key: None if no key was found.
        source: origin of the key, for messages.
    """

    url: str
    # Tracebacks, logs and notebooks show the repr, and must not show the key.
    key: str | None = field(repr=False)
    source: str
    profile: str

    def __post_init__(self) -> None:
        # Such a key cannot be a header: the request would fail with an error that names no remedy.
        if self.key and not (self.key.isascii() and self.key.isprintable()):
            where = "The argument `api_key`" if self.source == "argument" else self.source
            raise NoKey(
                f"{where} is no key of Perennial: one begins with pk_ and has plain letters and "
                "digits. `perennial keys create` makes one, `perennial login` keeps it."
            )


def find_service_connection(
    url: str | None = None, key: str | None = None, profile: str | None = None
) -> ServiceConnection:
    """Find URL and API key of a service in arguments, environment and configuration file.

    Raises:
        ConfigError: the named profile does not exist, the file cannot be read, or the URL is
            invalid.
        NoKey: the key has characters that no key has.
    """
    profile_name = profile or os.environ.get("PERENNIAL_PROFILE") or None
    name = profile_name or DEFAULT_PROFILE
    stored = read_profiles().get(name)
    # With URL and key given, no profile is needed.
    if profile_name is not None and stored is None and not (url and key):
        raise ConfigError(
            f"There is no profile {name!r} in {get_config_path()}: make it with `perennial login "
            f"--profile {name}`."
        )
    stored = stored or {}
    # A profile given as an argument applies as a whole; otherwise the environment takes precedence.
    from_environment = None if profile else os.environ.get("PERENNIAL_URL")
    address = extract_service_base_url(url or from_environment or stored.get("url") or DEFAULT_URL)
    without_key = ServiceConnection(address, None, "nowhere", name)
    if key:
        return replace(without_key, key=key, source="argument")
    if not profile and os.environ.get("PERENNIAL_API_KEY"):
        return replace(
            without_key, key=os.environ["PERENNIAL_API_KEY"].strip(), source="PERENNIAL_API_KEY"
        )
    # Send a profile's key only to the profile's own service.
    if stored.get("key") and address == stored.get("url"):
        return replace(
            without_key, key=_get_stored_key(stored["key"], name), source=f"profile {name}"
        )
    # Only for this machine: the file's key opens the service that wrote it, and no other.
    if is_local_service(address) and LOCAL_KEY.is_file():
        return replace(without_key, key=LOCAL_KEY.read_text().strip(), source=str(LOCAL_KEY))
    return without_key


def extract_service_base_url(url: str) -> str:
    """Return the base URL of a service from the URL of one of its pages or paths (`/ui…`, `/v1…`,
    `/docs`).

    Raises:
        ConfigError: it is not an http or https URL.
    """
    text = url.strip()
    parts = _try_split_url(text)
    is_page = parts is not None and not set(parts.path.split("/")).isdisjoint(OWN_PATHS)
    # No user name, because a password beside it would end up in messages and in the file.
    if parts is None or parts.username or ((parts.query or parts.fragment) and not is_page):
        raise ConfigError(
            f"{url!r} is no address of a service: write it as https://perennial.example.org."
        )
    segments: list[str] = []
    for segment in parts.path.split("/"):
        if segment in OWN_PATHS:
            break
        segments.append(segment)
    return f"{parts.scheme}://{parts.netloc}{'/'.join(segments)}".rstrip("/")


def _try_split_url(url: str) -> SplitResult | None:
    """Split an http or https URL with a host into parts; None for any other text."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def is_local_service(url: str) -> bool:
    """Return True if a service runs on this machine."""
    return urlsplit(url).hostname in LOOPBACK


def get_config_path() -> Path:
    """Return the path of the configuration file, which stores service profiles."""
    import platformdirs

    # appauthor=False: on Windows, the folder would otherwise be perennial\perennial.
    return platformdirs.user_config_path("perennial", appauthor=False) / "config.toml"


def read_profiles() -> dict[str, dict[str, str]]:
    """Read the service profiles in the configuration file, by name.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = get_config_path()
    try:
        with file.open("rb") as opened:
            document = tomllib.load(opened)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}. Mend it, or remove it and log in again."
        ) from error
    # People edit the file: a stray value at the top level should not end every command.
    tables = {name: table for name, table in document.items() if isinstance(table, dict)}
    return {
        name: {key: str(value) for key, value in table.items()} for name, table in tables.items()
    }


def store_profile(profile: str, url: str, key: str) -> str:
    """Store a service's URL and key under a profile name; return a description of where the
    key is.
    """
    in_keyring = _try_to_store_key_in_keyring(profile, key)
    _write_profiles(
        {**read_profiles(), profile: {"url": url, "key": IN_KEYRING if in_keyring else key}}
    )
    return "the system's keyring" if in_keyring else str(get_config_path())


def remove_service_profile(profile: str) -> bool:
    """Remove a service profile with its API key; return True if it existed."""
    remaining = read_profiles()
    if profile not in remaining:
        return False
    if remaining.pop(profile).get("key") == IN_KEYRING:
        _remove_key_from_keyring(profile)
    _write_profiles(remaining)
    return True


def _write_profiles(tables: dict[str, dict[str, str]]) -> None:
    """Write the service profiles atomically, readable only by their owner (0600)."""
    file = get_config_path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    toml_lines = []
    for name, table in tables.items():
        toml_lines.append(f"[{_quote_toml_text(name)}]")
        toml_lines += [f"{key} = {_quote_toml_text(value)}" for key, value in table.items()] + [""]
    # A process writes a file of its own and renames it, so that no reader meets half a file.
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    # Created with its mode: a later chmod would leave a moment in which others can read keys.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write("\n".join(toml_lines))
    fresh.replace(file)


def _quote_toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a valid TOML string


def _get_stored_key(stored: str, profile: str) -> str:
    if stored != IN_KEYRING:
        return stored
    remedy = f"run `perennial login --profile {profile}` again"
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise ConfigError(
            f"The key of the profile {profile} is in the system's keyring, and the package keyring "
            f"is not installed: pip install 'perennial-client[keyring]', or {remedy}."
        ) from error
    try:
        key = keyring.get_password(SERVICE_NAME, profile)
    except (KeyringError, RuntimeError) as error:  # locked, or unavailable in this session
        raise ConfigError(
            f"The key of the profile {profile} is in the system's keyring, which cannot be read "
            f"({error}): unlock it, or {remedy}."
        ) from error
    if not key:
        raise ConfigError(f"The system's keyring has no key for the profile {profile}: {remedy}.")
    return str(key)


def _try_to_store_key_in_keyring(profile: str, key: str) -> bool:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return False
    try:
        keyring.set_password(SERVICE_NAME, profile, key)
    except (KeyringError, RuntimeError):  # installed, but without a backend, as on a server
        return False
    return True


def _remove_key_from_keyring(profile: str) -> None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return
    try:
        keyring.delete_password(SERVICE_NAME, profile)
    except (KeyringError, RuntimeError):
        return
