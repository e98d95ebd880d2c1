"""Uploaded bases: weights that models may start from.

The file is checked by its header alone, before anything else reads it: size, names, shapes and dtypes must
be those of the architecture. What an architecture expects is asked of the learning code once, in a process
of its own, and kept in `<data dir>/catalogue/`.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from core import helper_process
from core.code_version import code_version
from core.db import references
from core.db.session import Database
from core.db.tables import Base
from core.errors import BaseInvalid, Invalid, NotFound, Unavailable
from core.ids import new_id
from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.answers.base import BaseOut
from core.protocol.answers.model_change import AskedImage
from core.protocol.base import ExpectedBase, UploadedFor
from core.protocol.catalogue import Catalogue
from core.recipe.architecture import architecture as complete
from core.recipe.base_images import BaseConfig, images_of_base
from core.recipe.images import Images, images_of
from core.requests import idempotency, quota
from core.requests.actor import Actor
from core.requests.audit import record
from core.requests.base_advice import advice, architecture_of, refuse_pickle
from core.requests.times import rfc3339
from core.safetensors_header import Tensor, check_expected, check_finite, read_header
from core.settings import Settings
from core.store.blobs import Blobs

_ROOT = Path(__file__).parents[2]
EXPECT_TIMEOUT_S = 60.0
CACHED_ARCHITECTURES = 200
UNSAID = BaseConfig()


def parse_architecture(
    catalogue: Catalogue, text: str, size: int | None, channels: int | None, config: BaseConfig = UNSAID
) -> tuple[ArchitectureChoice, Images]:
    """The complete architecture that `?architecture=` means, a name or a JSON object, and the images of the base.

    Raises:
        Invalid: not JSON, an unknown name, or bad hyper-parameters.
    """
    asked: Any = text
    if text.lstrip().startswith("{"):
        try:
            asked = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                "architecture is neither a name nor a JSON object.",
                fields=[{"field": "architecture", "message": "not JSON"}],
            ) from error
    if size is not None and config.size not in (None, size):
        raise Invalid(
            f"image_size is {size} and config.size {config.size}; say one of them.",
            fields=[{"field": "config.size", "message": "not that of image_size"}],
        )
    asked_image: AskedImage = {"size": size or config.size or 0, "channels": channels or 0}
    images = images_of_base(images_of(catalogue, asked, asked_image), config)
    return complete(catalogue, "class", asked, images.image), images


def known_base(settings: Settings, architecture: ArchitectureChoice, image: ImageOut) -> ExpectedBase | None:
    """What a base of this architecture must hold, where it was asked for before; None: it takes a process to say."""
    path, _ = _kept(settings, architecture, image)
    try:
        found: ExpectedBase = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def expected_base(settings: Settings, architecture: ArchitectureChoice, image: ImageOut) -> ExpectedBase:
    """What a base of this architecture must hold: `tensors`, `optional`, `ignored`.

    Raises:
        Invalid: the architecture cannot be built for this image.
        Unavailable: the learning code does not answer.
    """
    found = known_base(settings, architecture, image)
    if found is not None:
        return found
    path, request = _kept(settings, architecture, image)
    answer = _ask(request)
    kept = sorted(path.parent.glob("expected-*.json"), key=lambda p: p.name)
    if len(kept) >= CACHED_ARCHITECTURES:
        kept[0].unlink(missing_ok=True)
    temporary = path.with_suffix(f".{new_id('bas')}")
    temporary.write_text(json.dumps(answer))
    temporary.replace(path)
    return answer


def _kept(settings: Settings, architecture: ArchitectureChoice, image: ImageOut) -> tuple[Path, str]:
    """Where the answer is kept, and the question."""
    request = json.dumps({"architecture": architecture, "image": image}, sort_keys=True)
    name = hashlib.sha256(f"{code_version()}\n{request}".encode()).hexdigest()
    return settings.folder("catalogue") / f"expected-{name}.json", request


def create(
    db: Database,
    blobs: Blobs,
    settings: Settings,
    actor: Actor,
    *,
    architecture: ArchitectureChoice,
    images: Images,
    family: str,
    expected: ExpectedBase,
    path: Path,
    repeat: idempotency.Request | None = None,
) -> BaseOut:
    """Check an uploaded file and keep it; `path` is moved into the store.

    Args:
        images: that it was learned on.
        family: of the architecture, as the catalogue has it.
        expected: what a base of this architecture must hold, see `expected_base`.

    Raises:
        BaseInvalid: not a safetensors file, not one of this architecture, or with NaN or infinity in it.
        StorageFull: the owner has no room for it.
    """
    try:
        tensors = read_header(path)
    except BaseInvalid:
        refuse_pickle(path, architecture, family)
        raise
    if not tensors:
        raise BaseInvalid("The file holds no tensors.")
    _check_fit(tensors, expected, architecture, images.image, family)
    limit = settings.max_owner_bytes
    quota.require_room(db, actor.owner_id, limit, path.stat().st_size)
    check_finite(path, tensors)
    sha256, size = blobs.put_file(path, move=True)
    with db.write() as session:
        references.share(session)
        if not blobs.has(sha256):
            raise Unavailable("The upload was removed before it was registered; send it again.")
        now = db.now(session)
        row = Base(
            id=new_id("bas"),
            owner_id=actor.owner_id,
            architecture=_uploaded_for(architecture, images),
            sha256=sha256,
            bytes=size,
            created_at=now,
        )
        session.add(row)
        record(session, actor, "base.create", row.id, {"sha256": sha256, "bytes": size}, now=now)
        answer = _to_json(row)
        location = {"Location": f"/v1/bases/{row.id}"}
        idempotency.remember(session, actor, repeat, 201, location, answer, now)
        session.flush()
        quota.take(session, actor.owner_id, limit, size)
    return answer


def get(db: Database, actor: Actor, base_id: str) -> BaseOut:
    """One base.

    Raises:
        NotFound: no such base, or another owner's.
    """
    with db.read() as session:
        row = session.get(Base, base_id)
        if row is None or not actor.sees(row.owner_id):
            raise NotFound(f"There is no base {base_id!r}.")
        return _to_json(row)


def _check_fit(
    tensors: Sequence[Tensor],
    expected: ExpectedBase,
    architecture: ArchitectureChoice,
    image: ImageOut,
    family: str,
) -> None:
    """Raises BaseInvalid for a file that is not one of this architecture, with what it would fit."""
    ignored = tuple(expected["ignored"])
    optional = set(expected["optional"])
    present = {t.name for t in tensors}
    wanted = {n: want for n, want in expected["tensors"].items() if n in present or n not in optional}
    own = [t for t in tensors if t.name in wanted or not (ignored and t.name.startswith(ignored))]
    try:
        check_expected(own, wanted)
    except BaseInvalid as error:
        shapes = {t.name: t.shape for t in own}
        found = advice(architecture, image, family, shapes, {n: want["shape"] for n, want in wanted.items()})
        if found is None:
            raise
        raise found.error(error.fields) from None


def _uploaded_for(architecture: ArchitectureChoice, images: Images) -> UploadedFor:
    stored = {**architecture, "image": images.image}
    return cast(
        UploadedFor, stored if images.normalise is None else {**stored, "normalise": images.normalise}
    )


def _ask(request: str) -> ExpectedBase:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "core.learn.networks.expected", request],
            cwd=_ROOT,
            env=helper_process.environment(),
            capture_output=True,
            text=True,
            timeout=EXPECT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            "The learning code does not say what this architecture expects; try again."
        ) from None
    if done.returncode == 2:
        raise Invalid(
            done.stderr.strip()[-500:], fields=[{"field": "architecture", "message": "cannot be built"}]
        )
    if done.returncode != 0:
        raise Unavailable("The learning code could not be started; try again.")
    answer: ExpectedBase = json.loads(done.stdout)
    return answer


def _to_json(row: Base) -> BaseOut:
    return {
        "id": row.id,
        "sha256": row.sha256,
        "bytes": row.bytes,
        "architecture": architecture_of(row.architecture),
        "image": row.architecture.get("image"),
        "normalise": row.architecture.get("normalise"),
        "created_at": rfc3339(row.created_at),
    }
