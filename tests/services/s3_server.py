"""A real S3 server for tests: OpenStack Swift with its S3 interface, one node, on free ports.

It is installed at first use into a virtual environment of its own (`.venv-swift/`, about 80 MB),
from `swift-constraints.txt`, under a file lock. Its data need a file system with user extended
attributes.
"""

import errno
import fcntl
import getpass
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import processes
from pydantic import SecretStr

from core.settings import Settings

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-swift"
CONSTRAINTS = Path(__file__).with_name("swift-constraints.txt")
ACCESS_KEY = "test:tester"
SECRET_KEY = "testing-secret-key-of-the-tests"

_COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {etc}
log_level = WARNING
log_udp_host = 127.0.0.1
log_udp_port = 9
"""
_BACKEND = """devices = {root}/node
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
replication_server = no
"""
_PROXY = """[pipeline:main]
pipeline = catch_errors gatekeeper listing_formats bulk s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
error_suppression_interval = 2
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user_name} = {secret} .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


def install_if_missing() -> Path:
    """Install the server when missing, and return the `bin` folder of its virtual environment."""
    wanted = hashlib.sha256(CONSTRAINTS.read_bytes() + sys.version.encode()).hexdigest()
    ready = VENV / "ready"
    VENV.mkdir(exist_ok=True)
    with (VENV / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test sessions may start at once
        if not ready.is_file() or ready.read_text() != wanted:
            ready.unlink(missing_ok=True)
            python = VENV / "env" / "bin" / "python"
            pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
            for command in (
                # Without a pip of its own and without a search for requirements: a quarter of the
                # time.
                [sys.executable, "-m", "venv", "--clear", "--without-pip", VENV / "env"],
                [*pip, "install", "--quiet", "--no-deps", "-r", CONSTRAINTS],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise processes.ServiceMissing(
                        f"The S3 server of the tests cannot be installed ({CONSTRAINTS} into "
                        f"{VENV}):\n{done.stderr[-2000:]}"
                    )
            ready.write_text(wanted)
    return VENV / "env" / "bin"


def _has_user_attributes(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=folder) as probe:
        try:
            os.setxattr(probe.name, b"user.perennial", b"x" * 3000)
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.ENOSPC, errno.E2BIG, errno.EPERM):
                return False
            raise
    return True


def make_data_folder() -> Path:
    """Make a new folder on a file system with user extended attributes."""
    named = os.environ.get("PERENNIAL_TEST_DATA_DIR")
    tried = (
        [Path(named)]
        if named
        else [Path(tempfile.gettempdir()), Path("/var/tmp"), VENV, Path("/dev/shm")]
    )
    for folder in tried:
        if folder.is_dir() and os.access(folder, os.W_OK) and _has_user_attributes(folder):
            return Path(tempfile.mkdtemp(prefix="perennial-s3-", dir=folder))
    raise processes.ServiceMissing(
        f"The S3 server of the tests needs a file system with user extended attributes; {tried} "
        "have none. Set PERENNIAL_TEST_DATA_DIR to a folder on one (ext4, xfs, btrfs)."
    )


@dataclass
class S3Server:
    """One running server; `stop` and `start` simulate an outage, data survive it."""

    bin: Path
    root: Path
    port: int
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    bucket: str = "perennial"
    _running: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @classmethod
    def launch(cls) -> "S3Server":
        """Install, configure and start a server."""
        bin_folder = install_if_missing()
        root = make_data_folder()
        proxy, account, container, storage = processes.find_free_ports(4)
        etc = root / "etc"
        (root / "node" / "d1").mkdir(parents=True)
        etc.mkdir()
        (etc / "swift.conf").write_text(
            "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
            "[storage-policy:0]\nname = p0\ndefault = yes\n"
        )
        account_name, user_name = ACCESS_KEY.split(":")
        for kind, port in (("account", account), ("container", container), ("object", storage)):
            common = _COMMON.format(port=port, user=getpass.getuser(), etc=etc)
            (etc / f"{kind}.conf").write_text(common + _BACKEND.format(root=root, kind=kind))
        common = _COMMON.format(port=proxy, user=getpass.getuser(), etc=etc)
        (etc / "proxy.conf").write_text(
            common + _PROXY.format(account=account_name, user_name=user_name, secret=SECRET_KEY)
        )
        server = cls(bin_folder, root, proxy)
        try:
            ports = [str(port) for port in (account, container, storage)]
            rings = Path(__file__).with_name("swift_rings.py")
            done = subprocess.run(
                [bin_folder / "python", rings, etc, *ports],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise processes.ServiceMissing(
                    f"The S3 server's rings failed:\n{done.stderr[-2000:]}"
                )
            server.start()
        except processes.ServiceMissing:
            server.close()
            raise
        return server

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    @property
    def store_url(self) -> str:
        """The value of PERENNIAL_STORE_URL for the server's default bucket."""
        return self.url(self.bucket)

    def url(self, bucket: str, prefix: str = "") -> str:
        """A store URL for another bucket or prefix; `Store.create_folder_or_bucket` makes the
        bucket.
        """
        path = f"{bucket}/{prefix}" if prefix else bucket
        return f"s3://{self.endpoint}/{path}?secure=0&region=us-east-1"

    def environment(self) -> dict[str, str]:
        """The variables that point a service at this server."""
        return {
            "PERENNIAL_STORE_URL": self.store_url,
            "PERENNIAL_STORE_ACCESS_KEY": self.access_key,
            "PERENNIAL_STORE_SECRET_KEY": self.secret_key,
        }

    def settings(self, data_dir: Path, bucket: str = "", prefix: str = "") -> Settings:
        """Settings that point a service at this server (default: its own bucket, no prefix)."""
        return Settings(
            data_dir=data_dir,
            store_url=self.url(bucket or self.bucket, prefix),
            store_access_key=self.access_key,
            store_secret_key=SecretStr(self.secret_key),
        )

    def start(self) -> None:
        """Start what is not running, and wait until the server listens."""
        for kind in ("account", "container", "object", "proxy"):
            if kind not in self._running:
                self._running[kind] = processes.start_process(
                    [self.bin / f"swift-{kind}-server", self.root / "etc" / f"{kind}.conf"],
                    self.root / f"{kind}.log",
                    dict(os.environ, SWIFT_DIR=str(self.root / "etc")),
                )
        for kind, process in self._running.items():
            processes.wait_for_port(process, self._port(kind), self.root / f"{kind}.log")

    def _port(self, kind: str) -> int:
        text = (self.root / "etc" / f"{kind}.conf").read_text()
        return int(text.partition("bind_port = ")[2].partition("\n")[0])

    def stop(self) -> None:
        """Kill the server: connections are refused until `start`."""
        for process in self._running.values():
            processes.stop_process(process)
        self._running.clear()

    def freeze(self) -> None:
        """Stop answering without closing anything: connections are accepted and stay silent."""
        self._running["proxy"].send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._running["proxy"].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop and remove all data."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
