"""Files of other projects are those that their lists name, with their licences."""

import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tools import vendor


def test_every_file_has_the_digest_of_its_list_and_no_other_is_there() -> None:
    assert list(vendor.find_faults_of_vendored_files()) == []


def test_every_package_names_its_licence_and_brings_its_text() -> None:
    for package in vendor.read_vendored_packages():
        assert package.licence in {"0BSD", "MIT", "Apache-2.0", "MPL-2.0"}
        assert any(into.startswith("licences/") for into, _ in package.files.values()), package.name


@pytest.fixture
def package(tmp_path: Path) -> vendor.NpmPackage:
    """A package of one file, with its tarball beside it."""
    content = b"alert(1)"
    (tmp_path / "a.js").write_bytes(content)
    with tarfile.open(tmp_path / "a-1.tgz", "w:gz") as archive:
        archive.add(tmp_path / "a.js", "package/dist/a.js")
    tarball = hashlib.sha256((tmp_path / "a-1.tgz").read_bytes()).hexdigest()
    files = {"dist/a.js": ("a.js", hashlib.sha256(content).hexdigest())}
    return vendor.NpmPackage(tmp_path / "into", "a", "1", "MIT", "a-1.tgz", tarball, files)


def test_the_listed_files_are_taken_out(package: vendor.NpmPackage, tmp_path: Path) -> None:
    vendor.unpack_vendored_files(package, tmp_path / "a-1.tgz")
    assert (tmp_path / "into" / "a.js").read_bytes() == b"alert(1)"


def test_a_tarball_or_a_file_of_other_bytes_is_refused(
    package: vendor.NpmPackage, tmp_path: Path
) -> None:
    with pytest.raises(vendor.VendoredDigestMismatch, match=r"a-1\.tgz has the sha256"):
        vendor.unpack_vendored_files(replace(package, sha256="0" * 64), tmp_path / "a-1.tgz")
    with pytest.raises(vendor.VendoredDigestMismatch, match=r"dist/a\.js"):
        vendor.unpack_vendored_files(
            replace(package, files={"dist/a.js": ("a.js", "0" * 64)}), tmp_path / "a-1.tgz"
        )
    assert not (tmp_path / "into").exists()
