"""Faults of the outage campaign: a service's servers behind relays, their disks, its workers'
clocks.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running_site import WORKERS, Broken, Site
from servers import Servers, run_servers

from core.storage import open_object_store

from fault_proxy import FaultProxy  # isort: skip

SETTINGS = {"PERENNIAL_SNAPSHOT_S": "0.5", "PERENNIAL_LEASE_S": "3"}
CUTS = (300_000, 2_000, 1_300_000, 60_000, 9_000_000)
LARGE = (
    *("database-refused", "database-silent", "broker-silent"),
    *("store-overloaded", "store-silent", "store-cut", "store-refused"),
    *("postgres-crash", "postgres-restart", "postgres-frozen", "redis-flushed", "redis-frozen"),
    *("disk-store", "disk-database", "clock-ahead", "clock-behind"),
)
CLOCKS = ("leases-ahead", "leases-behind")
SMALL = ("disk-small",)
ALL = (*LARGE, *CLOCKS, *SMALL)


@dataclass(frozen=True)
class Fault:
    """One thing that happens for `seconds`. `down`: what `/readyz` must say of a part by the end of
    it.
    """

    name: str
    what: str
    seconds: float
    begin: Callable[[], object]
    end: Callable[[], object]
    down: dict[str, str] = field(default_factory=dict)


@dataclass
class Backends(Servers):
    """The servers of a large site, each behind a relay. `disks`: the two small file systems."""

    relays: dict[str, FaultProxy]
    disks: dict[str, Path]

    def environment(self) -> dict[str, str]:
        """The settings that name the relays."""
        return {
            **SETTINGS,
            **super().environment(),
            "PERENNIAL_DATABASE_URL": make_relayed_url(
                self.postgres.url, self.postgres.port, self.relays["database"]
            ),
            "PERENNIAL_BROKER_URL": make_relayed_url(
                self.redis.url, self.redis.port, self.relays["broker"]
            ),
            "PERENNIAL_STORE_URL": make_relayed_url(
                self.s3.store_url, self.s3.port, self.relays["store"]
            ),
        }


def make_relayed_url(url: str, port: int, relay: FaultProxy) -> str:
    """Return a URL that leads through the relay."""
    return url.replace(f":{port}", f":{relay.port}")


@contextmanager
def run_backends(folder: Path) -> Iterator[Backends]:
    """Run servers of a campaign's own, and remove them afterwards."""
    with ExitStack() as stack:
        disks = {}
        for name, size in (("postgres", "200m"), ("s3", "400m")):
            disks[name] = folder / f"disk-{name}"
            stack.enter_context(mount_small_disk(disks[name], size))
            disks[name].chmod(0o755)
        folder.chmod(0o755)  # user postgres goes through it
        os.environ["PERENNIAL_TEST_DATA_DIR"] = str(disks["s3"])
        own = stack.enter_context(run_servers(disks["postgres"]))
        open_object_store(own.s3.settings(own.s3.root)).create_folder_or_bucket()
        ports = {"database": own.postgres.port, "broker": own.redis.port, "store": own.s3.port}
        relays = {
            part: stack.enter_context(closing(FaultProxy(port))) for part, port in ports.items()
        }
        yield Backends(own.postgres, own.redis, own.s3, relays, disks)


@contextmanager
def mount_small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill_disk(disk: Path) -> None:
    """Leave no room on a file system."""
    with (disk / "ballast").open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


def clear_disk(disk: Path) -> None:
    """Free the space again."""
    (disk / "ballast").unlink()


def make_relay_faults(relays: dict[str, FaultProxy]) -> list[Fault]:
    """Return the faults that relays can cause; they need no server of one's own."""

    def make_relay_fault(
        name: str, what: str, seconds: float, part: str, kind: Any, tells: bool = True
    ) -> Fault:
        relay = relays[part]
        down = {part: "down"} if tells else {}
        return Fault(name, what, seconds, lambda: relay.fault(kind, CUTS), relay.heal, down)

    return [
        make_relay_fault(
            "database-refused", "nobody listens where PostgreSQL was", 6, "database", "refused"
        ),
        make_relay_fault(
            "database-silent",
            "PostgreSQL takes connections and stays silent",
            12,
            "database",
            "silent",
        ),
        make_relay_fault(
            "broker-silent", "Redis takes connections and stays silent", 10, "broker", "silent"
        ),
        make_relay_fault(
            "store-overloaded", "S3 answers 503 to everything", 10, "store", "overloaded"
        ),
        make_relay_fault(
            "store-silent", "S3 takes connections and stays silent", 15, "store", "silent"
        ),
        make_relay_fault(
            "store-cut",
            "S3's connections break in mid-part, up and down",
            12,
            "store",
            "cut",
            False,
        ),
        make_relay_fault("store-refused", "nobody listens where S3 was", 8, "store", "refused"),
    ]


def make_server_faults(of: Backends, at: Site) -> list[Fault]:
    """Return faults of the servers themselves, their disks, and the workers' clocks."""

    def clear_and_restart_postgres() -> None:
        clear_disk(of.disks["postgres"])
        of.postgres.start()  # out of room for its log it gives up

    postgres, redis, disks = of.postgres, of.redis, of.disks
    return [
        Fault("postgres-crash", "PostgreSQL stopped at once and started again", 8,
              lambda: postgres.stop("immediate"), postgres.start, {"database": "down"}),
        Fault("postgres-restart", "PostgreSQL restarted in "
            "order", 0, lambda: postgres.stop("fast"), postgres.start),
        Fault("postgres-frozen", "PostgreSQL's processes stopped in mid-query (SIGSTOP)", 12,
              postgres.freeze, postgres.thaw, {"database": "down"}),
        Fault("redis-flushed", "Redis killed, all it held "
            "lost", 8, redis.stop, redis.start, {"broker": "down"}),
        Fault("redis-frozen", "Redis stopped "
            "(SIGSTOP)", 10, redis.freeze, redis.thaw, {"broker": "down"}),
        Fault("disk-store", "S3's disk "
            "full", 12, lambda: fill_disk(disks["s3"]), lambda: clear_disk(disks["s3"])),
        Fault("disk-database", "PostgreSQL's disk "
            "full", 12, lambda: fill_disk(disks["postgres"]), clear_and_restart_postgres),
        *make_clock_faults(at, "clock", ""),
    ]  # fmt: skip


def set_clock(of: Site, offset_s: str | None = None) -> None:
    """Restart the second worker with another clock, or its own."""
    name = WORKERS[1]
    of.processes[name].terminate()
    of.processes[name].wait(60)
    found = importlib.util.find_spec("libfaketime")
    if found is None or not found.submodule_search_locations:
        raise Broken("libfaketime is not installed: pip install -c constraints.txt libfaketime")
    library = Path(found.submodule_search_locations[0]) / "vendor/libfaketime/src/libfaketime.so.1"
    moved = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{offset_s}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    of.own[name] = moved if offset_s else {}
    of.start(name)


def make_small_faults(disk: Path) -> list[Fault]:
    """Return faults of the small size, whose data all lie on one disk."""
    what = "the small size's disk full"
    return [
        Fault(
            "disk-small",
            what,
            12,
            lambda: fill_disk(disk),
            lambda: clear_disk(disk),
            {"store": "full"},
        )
    ]


def make_clock_faults(
    at: Site, name: str = "leases", where: str = ", store in a folder"
) -> list[Fault]:
    """Return faults in which a worker's clock is moved.

    If the store does not look at the clock, the worker goes on: only leases could suffer.
    """

    def make_clock_fault(way: str, offset_s: str) -> Fault:
        what = f"a worker's clock an hour {way}{where}"
        return Fault(
            f"{name}-{way}", what, 15, lambda: set_clock(at, offset_s), lambda: set_clock(at)
        )

    return [make_clock_fault("ahead", "+3600"), make_clock_fault("behind", "-3600")]
