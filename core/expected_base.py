"""What a base of an architecture must hold: names, shapes and dtypes of its tensors.

It is asked of the learning code once, in a process of its own, and kept in `<data dir>/catalogue/`.
"""

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from core import helper_process
from core.code_version import code_version
from core.errors import Invalid, Unavailable
from core.ids import new_id
from core.protocol.answers.architecture import ArchitectureChoice, ImageOut
from core.protocol.base import ExpectedBase, ExpectedTensor
from core.safetensors_header import Tensor
from core.settings import Settings

EXPECT_TIMEOUT_S = 60.0
CACHED_ARCHITECTURES = 200


def known_base(settings: Settings, architecture: ArchitectureChoice, image: ImageOut) -> ExpectedBase | None:
    """What a base of this architecture must hold, where it was asked for before; None: it takes a process to
    say."""
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


def to_compare(
    tensors: Sequence[Tensor], expected: ExpectedBase
) -> tuple[list[Tensor], dict[str, ExpectedTensor]]:
    """The tensors of a file that count, and those that it must hold: without what it may leave out or bring
    along."""
    ignored = tuple(expected["ignored"])
    optional = set(expected["optional"])
    present = {t.name for t in tensors}
    wanted = {n: want for n, want in expected["tensors"].items() if n in present or n not in optional}
    own = [t for t in tensors if t.name in wanted or not (ignored and t.name.startswith(ignored))]
    return own, wanted


def _kept(settings: Settings, architecture: ArchitectureChoice, image: ImageOut) -> tuple[Path, str]:
    """Where the answer is kept, and the question."""
    request = json.dumps({"architecture": architecture, "image": image}, sort_keys=True)
    name = hashlib.sha256(f"{code_version()}\n{request}".encode()).hexdigest()
    return settings.folder("catalogue") / f"expected-{name}.json", request


def _ask(request: str) -> ExpectedBase:
    try:
        done = helper_process.run_module("core.learn.networks.expected", request, EXPECT_TIMEOUT_S)
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
