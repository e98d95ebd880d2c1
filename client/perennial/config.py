"""Where the service is, and the key to it.

The first that says it wins: an argument; `PERENNIAL_URL` and `PERENNIAL_API_KEY`; the profile (`--profile`,
`PERENNIAL_PROFILE`, else `default`) in the file `config.toml` of the user's configuration folder; for a service on this
machine `perennial-data/admin-key` in the working directory.
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
"""First segments of a service's own paths: what a person copies from a browser has them behind the address."""
IN_KEYRING = "keyring"
"""Stands in the file where the key is in the system's keyring."""
SERVICE_NAME = "perennial"


@dataclass(frozen=True)
class Connection:
    """A service and a key to it. `key` None: none was found; `source` says where the key came from."""

    url: str
    key: str | None = field(repr=False)
    source: str
    profile: str

    def __post_init__(self) -> None:
        if self.key and not (self.key.isascii() and self.key.isprintable()):
            where = "The argument `api_key`" if self.source == "argument" else self.source
            raise NoKey(
                f"{where} is no key of Perennial: one begins with pk_ and has plain letters and digits. "
                "`perennial keys create` makes one, `perennial login` keeps it."
            )


def connection(url: str | None = None, key: str | None = None, profile: str | None = None) -> Connection:
    """What to connect to.

    Raises:
        ConfigError: the profile that was named does not exist, the file cannot be read, or the URL is none.
    """
    named = profile or os.environ.get("PERENNIAL_PROFILE") or None
    name = named or DEFAULT_PROFILE
    stored = profiles().get(name)
    if named is not None and stored is None and not (url and key):  # with both said, none is needed
        raise ConfigError(
            f"There is no profile {name!r} in {config_file()}: make it with `perennial login --profile {name}`."
        )
    stored = stored or {}
    # A profile that was named is meant as a whole; else what the environment says comes first.
    from_environment = None if profile else os.environ.get("PERENNIAL_URL")
    address = checked_url(url or from_environment or stored.get("url") or DEFAULT_URL)
    found = Connection(address, None, "nowhere", name)
    if key:
        return replace(found, key=key, source="argument")
    if not profile and os.environ.get("PERENNIAL_API_KEY"):
        return replace(found, key=os.environ["PERENNIAL_API_KEY"].strip(), source="PERENNIAL_API_KEY")
    if stored.get("key") and address == stored.get("url"):  # a key goes to its own service alone
        return replace(found, key=_stored_key(stored["key"], name), source=f"profile {name}")
    if is_local(address) and LOCAL_KEY.is_file():
        return replace(found, key=LOCAL_KEY.read_text().strip(), source=str(LOCAL_KEY))
    return found


def checked_url(url: str) -> str:
    """Return the address of a service from that of one of its pages or paths: without `/ui…`, `/v1…` or `/docs`.

    Raises:
        ConfigError: it is no http address.
    """
    text = url.strip()
    parts = _split(text)
    is_page = parts is not None and not set(parts.path.split("/")).isdisjoint(OWN_PATHS)
    if parts is None or parts.username or ((parts.query or parts.fragment) and not is_page):
        raise ConfigError(f"{url!r} is no address of a service: write it as https://perennial.example.org.")
    kept: list[str] = []
    for segment in parts.path.split("/"):
        if segment in OWN_PATHS:
            break
        kept.append(segment)
    return f"{parts.scheme}://{parts.netloc}{'/'.join(kept)}".rstrip("/")


def _split(url: str) -> SplitResult | None:
    """Return the parts of an http address with a host; None: it is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def is_local(url: str) -> bool:
    """Whether a service is on this machine."""
    return urlsplit(url).hostname in LOOPBACK


def config_file() -> Path:
    """The file with the profiles."""
    import platformdirs

    return platformdirs.user_config_path("perennial", appauthor=False) / "config.toml"


def profiles() -> dict[str, dict[str, str]]:
    """What is stored, by name of the profile.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = config_file()
    try:
        with file.open("rb") as opened:
            found = tomllib.load(opened)
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}. Mend it, or remove it and log in again."
        ) from error
    tables = {name: table for name, table in found.items() if isinstance(table, dict)}
    return {name: {key: str(value) for key, value in table.items()} for name, table in tables.items()}


def store(profile: str, url: str, key: str) -> str:
    """Keep a service and its key under a name; returns where the key is now, in words."""
    kept = _put_in_keyring(profile, key)
    _write({**profiles(), profile: {"url": url, "key": IN_KEYRING if kept else key}})
    return "the system's keyring" if kept else str(config_file())


def forget(profile: str) -> bool:
    """Remove a profile with its key; returns whether there was one."""
    there = profiles()
    if profile not in there:
        return False
    if there.pop(profile).get("key") == IN_KEYRING:
        _remove_from_keyring(profile)
    _write(there)
    return True


def _write(tables: dict[str, dict[str, str]]) -> None:
    """Readable for its owner alone (0600), and always whole: a new file takes the old one's place."""
    file = config_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = []
    for name, table in tables.items():
        lines.append(f"[{_quoted(name)}]")
        lines += [f"{key} = {_quoted(value)}" for key, value in table.items()] + [""]
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write("\n".join(lines))
    fresh.replace(file)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a string of JSON is one of TOML


def _stored_key(stored: str, profile: str) -> str:
    if stored != IN_KEYRING:
        return stored
    again = f"run `perennial login --profile {profile}` again"
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise ConfigError(
            f"The key of the profile {profile} is in the system's keyring, and the package keyring is not installed: "
            f"pip install 'perennial-client[keyring]', or {again}."
        ) from error
    try:
        found = keyring.get_password(SERVICE_NAME, profile)
    except (KeyringError, RuntimeError) as error:  # locked, or there is none in this session
        raise ConfigError(
            f"The key of the profile {profile} is in the system's keyring, which cannot be read ({error}): unlock it, "
            f"or {again}."
        ) from error
    if not found:
        raise ConfigError(f"The system's keyring has no key for the profile {profile}: {again}.")
    return str(found)


def _put_in_keyring(profile: str, key: str) -> bool:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return False
    try:
        keyring.set_password(SERVICE_NAME, profile, key)
    except (KeyringError, RuntimeError):  # installed, but this machine has none, such as a server
        return False
    return True


def _remove_from_keyring(profile: str) -> None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return
    try:
        keyring.delete_password(SERVICE_NAME, profile)
    except (KeyringError, RuntimeError):
        return
