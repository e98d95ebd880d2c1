"""Small models and batches, whose jobs end quickly: end-to-end tests show everything around the
training.
"""

import io
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from perennial import types
from tests.client.small_batches import reduce_batch
from tests.rest import Json, Rest
from tools import digits

T = TypeVar("T")
IMAGE: Json = {"size": 8, "channels": 1}
MODEL: Json = {"architecture": {"name": "mlp", "hidden": [16]}, "image": IMAGE}
WEEKS: list[bytes] = [reduce_batch(archive) for _, archive in digits.build_digit_archives()]
"""Batches of the digits 0 and 1, 2 and 3, …: of each digit 24 images for training and 8 for
measuring.
"""


def create_small_model(client: Rest, name: str, method: str | Json, **fields: Any) -> types.Model:
    """Create a small model that is trained with a method for one epoch.

    Args:
        fields: replace those of `MODEL`; None removes one. `recipe` extends the recipe.
    """
    epochs = {} if "analytic" in str(method) else {"epochs": 1, "batch_size": 8}
    recipe = {"method": method, **epochs, **fields.pop("recipe", {})}
    given = {name: value for name, value in {**MODEL, **fields}.items() if value is not None}
    # One epoch forgets what it learned before. `tests/e2e/test_gate.py` is about the checks that
    # see that.
    given["gate"] = {"checks": "off", **given.get("gate", {})}
    return client.models.create(name, given.pop("scenario", "class"), recipe=recipe, **given)


def learn_batches(client: Rest, model: str, *batches: bytes, **options: Any) -> list[types.Job]:
    """Submit batches, wait for their jobs and assert that all succeeded."""
    jobs = [client.submit(model, batch, **options) for batch in batches]
    ends = [client.wait(job) for job in jobs]
    assert [end.state for end in ends] == ["succeeded"] * len(batches), ends
    return ends


def take_first_image(batch: bytes, label: str = "") -> bytes:
    """Return the first image of a batch, or of one of its classes."""
    with zipfile.ZipFile(io.BytesIO(batch)) as archive:
        return archive.read(next(name for name in archive.namelist() if f"/{label}" in name))


def thin_out(batch: bytes) -> bytes:
    """Keep every fourth image of a batch."""
    with zipfile.ZipFile(io.BytesIO(batch)) as archive:
        return pack_zip({name: archive.read(name) for name in archive.namelist()[::4]})


def pick_class(batch: bytes, label: str) -> bytes:
    """Keep the images of one class of a batch."""
    with zipfile.ZipFile(io.BytesIO(batch)) as archive:
        return pack_zip(
            {name: archive.read(name) for name in archive.namelist() if f"/{label}/" in name}
        )


def make_spoiled_batch(count: int) -> bytes:
    """Pack a batch of two classes with `count` images each, none of which can be decoded."""
    broken = b"\x89PNG\r\n\x1a\n nothing"
    return pack_zip({f"{label}/{n}.png": broken for label in ("cat", "dog") for n in range(count)})


def pack_zip(files: Mapping[str, bytes]) -> bytes:
    """Pack files, by name, into a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def unpack_version(client: Rest, model: str, version: int, folder: Path) -> Path:
    """Download a version into a folder and unpack it there."""
    client.download(model, version, folder / "version.zip")
    with zipfile.ZipFile(folder / "version.zip") as archive:
        archive.extractall(folder)
    return folder


def wait_until(condition: Callable[[], T], seconds: float = 120.0) -> T:
    """Poll a condition until it is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.05)
    return found


def wait_for_job_condition(client: Rest, job: str, wanted: Callable[[Json], bool]) -> Json:
    """Poll a job until a condition holds; fail if the job ends first."""

    def read_job_if_wanted() -> Json | None:
        seen = client.get(f"/v1/jobs/{job}")
        assert wanted(seen) or not seen["is_terminal"], seen
        return seen if wanted(seen) else None

    found = wait_until(read_job_if_wanted)
    assert found is not None
    return found
