"""Build of a release's files: source distributions and wheels of service and client.

    python -m tools.release.distributions [--out dist] [--wheels]

It needs `build`, `setuptools` and Zensical (the extra `dev`). OUT is emptied first. Beside the
distributions it gets the constraints of a reproducible installation, the notices, and SHA256SUMS.
`--wheels` builds only the wheels, for an image. The service's distributions have the guide, which is
built for them.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.guide.build import OUT as GUIDE
from tools.guide.build import rebuild_guide_folder

ROOT = Path(__file__).resolve().parents[2]
CLIENT = "client"
SERVICE = (
    *("api", "core", "migrations", "perennial_service", "tools", "worker"),
    *("pyproject.toml", "setup.py", "MANIFEST.in", "alembic.ini", "constraints.txt"),
    *("README.md", "LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"),
)
"""Sources of the service's distributions."""
DOCUMENTS = ("docs", "bench/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Sources of the guide besides those."""
BESIDE = ("constraints.txt", "THIRD_PARTY_NOTICES.md")
"""Files that a release has beside its distributions."""
SUMS = "SHA256SUMS"
LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", GUIDE.name)


def build_distributions_into_emptied_folder(out: Path, *, only_wheels: bool = False) -> None:
    """Build wheels and source distributions of service and client into a folder, emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in (("service", SERVICE), (CLIENT, (CLIENT,))):
            copy = Path(folder) / name
            _copy_checkout_files(sources, copy)
            if name != CLIENT:
                rebuild_guide_folder(copy / GUIDE.relative_to(ROOT))
            _build_project_distributions(
                copy / CLIENT if name == CLIENT else copy, out, only_wheels
            )
    if not only_wheels:
        for name in BESIDE:
            shutil.copy(ROOT / name, out)
        write_checksums(out)


def _copy_checkout_files(sources: tuple[str, ...], copy: Path) -> None:
    """Copy files of the checkout to a folder, so that a build does not write into the checkout.

    A build in the checkout would write there, and take over the list of files of an earlier build.
    """
    copy.mkdir()
    for name in sources:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=LEFTOVERS)
        else:
            shutil.copy(ROOT / name, copy)


def _build_project_distributions(project: Path, out: Path, only_wheels: bool) -> None:
    # Not isolated: setuptools is pinned with the other tools, and nothing is downloaded.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run(
        [*command, *(["--wheel"] if only_wheels else []), str(project)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nThe build of {project.name} failed; see above.")


def write_checksums(out: Path) -> None:
    """Write the SHA-256 of each release file, for `sha256sum --check`."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines))


def main() -> None:
    """Build the release's distributions, and print their names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheels", action="store_true", help="no source distributions")
    options = parser.parse_args()
    build_distributions_into_emptied_folder(options.out.absolute(), only_wheels=options.wheels)
    for path in sorted(options.out.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.name}")


if __name__ == "__main__":
    main()
