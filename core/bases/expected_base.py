"""Names, shapes and dtypes of the tensors that a base must have for an architecture.

The learning code computes them once, in a separate process; they are cached in `<data
dir>/catalogue/`.
"""

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from core.contract.base import ExpectedBaseTensors, ExpectedTensor
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.errors import Invalid, Unavailable
from core.files.safetensors_header import TensorHeader
from core.ids import new_id
from core.processes import helper_process
from core.recipe.code_version import compute_learning_code_digest
from core.settings import Settings

EXPECT_TIMEOUT_S = 60.0
CACHED_ARCHITECTURES = 200


def find_cached_base_tensor_shapes(
    settings: Settings, architecture: ArchitectureChoice, image: ImageOut
) -> ExpectedBaseTensors | None:
    """Return from the cache names and shapes of the tensors that a base must have, or None."""
    path, _ = _locate_expected_tensors_cache_file(settings, architecture, image)
    try:
        expected: ExpectedBaseTensors = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return expected


def load_or_compute_base_tensor_shapes(
    settings: Settings, architecture: ArchitectureChoice, image: ImageOut
) -> ExpectedBaseTensors:
    """Return names and shapes of the tensors that a base must have, from the cache or computed.

    Raises:
        Invalid: the architecture cannot be built for this image.
        Unavailable: the learning code does not respond.
    """
    cached = find_cached_base_tensor_shapes(settings, architecture, image)
    if cached is not None:
        return cached
    path, request = _locate_expected_tensors_cache_file(settings, architecture, image)
    expected = _compute_expected_base_tensor_shapes(request)
    cached_files = sorted(path.parent.glob("expected-*.json"), key=lambda p: p.name)
    # Clients choose the architectures, so without a limit they could fill the disk.
    if len(cached_files) >= CACHED_ARCHITECTURES:
        # Names are digests, so this is an arbitrary one; it is computed again when needed.
        cached_files[0].unlink(missing_ok=True)
    # Renamed when it is complete, because other processes read the folder meanwhile.
    temporary = path.with_suffix(f".{new_id('bas')}")
    temporary.write_text(json.dumps(expected))
    temporary.replace(path)
    return expected


def select_tensors_to_compare_with_expected(
    tensors: Sequence[TensorHeader], expected: ExpectedBaseTensors
) -> tuple[list[TensorHeader], dict[str, ExpectedTensor]]:
    """Return a file's tensors without those to ignore, and the tensors that the file must have.

    Ignored tensors are left out of the former, absent optional ones out of the latter.
    """
    ignored = tuple(expected["ignored"])
    optional = set(expected["optional"])
    present = {t.name for t in tensors}
    required = {
        n: tensor for n, tensor in expected["tensors"].items() if n in present or n not in optional
    }
    relevant = [
        t for t in tensors if t.name in required or not (ignored and t.name.startswith(ignored))
    ]
    return relevant, required


def _locate_expected_tensors_cache_file(
    settings: Settings, architecture: ArchitectureChoice, image: ImageOut
) -> tuple[Path, str]:
    """Return the cache file for an architecture's expected tensors, and the request to compute them
    as JSON.
    """
    # Sorted, so that equal architectures have one file whatever the order of their fields.
    request = json.dumps({"architecture": architecture, "image": image}, sort_keys=True)
    # With the code's version, since other code may expect other tensors of the same architecture.
    name = hashlib.sha256(f"{compute_learning_code_digest()}\n{request}".encode()).hexdigest()
    return settings.make_folder("catalogue") / f"expected-{name}.json", request


def _compute_expected_base_tensor_shapes(request: str) -> ExpectedBaseTensors:
    try:
        done = helper_process.run_module_in_helper_process(
            "core.learning.networks.expected", request, EXPECT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            "The learning code does not say what this architecture expects; try again."
        ) from None
    # The module's status for an architecture that cannot be built; its message is for the user.
    if done.returncode == 2:
        raise Invalid(
            done.stderr.strip()[-500:],
            fields=[{"field": "architecture", "message": "cannot be built"}],
        )
    if done.returncode != 0:
        raise Unavailable("The learning code could not be started; try again.")
    expected: ExpectedBaseTensors = json.loads(done.stdout)
    return expected
