"""Download and check of other projects' files that the pages need.

    python -m tools.vendor [--registry URL] [--check]

A `VENDOR.toml` beside such files names each package, its licence, and the sha256 of its tarball and
of every file that is taken from it. `npm pack` downloads a tarball from the registry of npm's own
configuration, or from `--registry`. To take a new version, change the name of the tarball, run
this, and enter the digests that it prints.
"""

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "api" / "static" / "vendor", ROOT / "tests" / "ui" / "vendor")
LIST = "VENDOR.toml"


@dataclass(frozen=True)
class NpmPackage:
    """An npm package whose files are vendored in this repository.

    `files`: path in the tarball → (name beside `VENDOR.toml`, sha256).
    """

    folder: Path
    name: str
    version: str
    licence: str
    tarball: str
    sha256: str
    files: dict[str, tuple[str, str]]


class VendoredDigestMismatch(Exception):
    """The bytes of a vendored file differ from the listed digest."""


def main() -> None:
    """Download all vendored npm packages, or check the existing files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--registry", help="base of the npm registry; npm's own configuration by default"
    )
    parser.add_argument(
        "--check", action="store_true", help="fetch nothing: compare the files with the list"
    )
    options = parser.parse_args()
    try:
        for package in read_vendored_packages():
            if not options.check:
                download_and_unpack_vendored_package(package, options.registry)
            print(
                f"{package.name} {package.version} ({package.licence}): {len(package.files)} files"
            )
        problems = list(find_faults_of_vendored_files())
    except VendoredDigestMismatch as error:
        problems = [str(error)]
    if problems:
        sys.exit("\n".join(problems))


def read_vendored_packages() -> Iterator[NpmPackage]:
    """Yield the npm packages in all VENDOR.toml lists."""
    for folder in FOLDERS:
        for entry in tomllib.loads((folder / LIST).read_text())["package"]:
            files = {path: (into, digest) for path, (into, digest) in entry.pop("files").items()}
            yield NpmPackage(folder=folder, files=files, **entry)


def find_faults_of_vendored_files() -> Iterator[str]:
    """Yield the faults of vendored files: changed, missing, or on no list."""
    listed = {folder / LIST for folder in FOLDERS}
    for package in read_vendored_packages():
        for into, digest in package.files.values():
            path = package.folder / into
            listed.add(path)
            if not path.is_file():
                yield f"{path.relative_to(ROOT)} is missing: python -m tools.vendor fetches it."
            elif (actual_digest := _hash_content(path.read_bytes())) != digest:
                yield (
                    f"{path.relative_to(ROOT)} has the sha256 {actual_digest}, and the list says "
                    f"{digest}."
                )
    for folder in FOLDERS:
        # Also files on no list are reported: their origin and licence would be unknown.
        for path in sorted(set(folder.rglob("*")) - listed):
            if path.is_file():
                yield f"{path.relative_to(ROOT)} is on no list."


def download_and_unpack_vendored_package(package: NpmPackage, registry: str | None = None) -> None:
    """Download an npm package, and put its listed files beside its list.

    Raises:
        VendoredDigestMismatch: the tarball or a file does not have the bytes in the list.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen = [] if registry is None else ["--registry", registry]
        package_version = f"{package.name}@{package.version}"
        # npm writes the tarball into its working directory.
        subprocess.run(
            ["npm", "pack", "--silent", *chosen, package_version], cwd=folder, check=True
        )
        unpack_vendored_files(package, (Path(folder) / package.tarball))


def unpack_vendored_files(package: NpmPackage, tarball: Path) -> None:
    """Extract the listed files from an npm tarball, and check their digests.

    Raises:
        VendoredDigestMismatch: a file is missing or does not have the bytes in the list.
    """
    # Before it is opened, so that tarfile reads only expected bytes.
    _require_content_matches_digest(package.tarball, tarball.read_bytes(), package.sha256)
    with tarfile.open(tarball) as archive:
        for path, (into, digest) in package.files.items():
            # npm packs all files below `package/`.
            member = archive.extractfile(f"package/{path}")
            if member is None:
                raise VendoredDigestMismatch(f"{package.tarball} has no file {path}.")
            text = member.read()
            _require_content_matches_digest(f"{path} of {package.tarball}", text, digest)
            target = package.folder / into
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)


def _require_content_matches_digest(what: str, content: bytes, digest: str) -> None:
    if _hash_content(content) != digest:
        raise VendoredDigestMismatch(
            f"{what} has the sha256 {_hash_content(content)}, and the list says {digest}."
        )


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
