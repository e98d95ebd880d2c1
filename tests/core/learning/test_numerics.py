"""Number format of training, deterministic kernels, and what a manifest says of both."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conformance
import pytest
import torch
from streams import Bench, spy_on_calls

from core.learning import numerics
from core.learning.methods import registry
from core.learning.networks.backbones.mlp import MlpBackbone
from core.learning.numerics import NumericsSettings, parse_nondeterministic_operation
from core.learning.recipe import Recipe
from core.learning.training.context import TaskTrainingContext

ROOT = Path(__file__).parents[3]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SLOW = {"amx_bf16": False, "avx512_bf16": False}


def read_flags() -> dict[str, Any]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
        "cudnn": (cudnn.deterministic, cudnn.benchmark),
        "formats": (matmul.fp32_precision, cudnn.conv.fp32_precision),
        "attention": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
    }


BEFORE = read_flags()
EXACT = {"formats": ("ieee", "ieee")}


@pytest.mark.parametrize(
    ("device", "deterministic", "changed"),
    [
        (CPU, True, {}),
        (CPU, False, {}),
        (CUDA, False, {**EXACT, "cudnn": (False, True)}),
        (
            CUDA,
            True,
            {
                **EXACT,
                "cudnn": (True, False),
                "algorithms": True,
                "warn only": True,
                "filled": False,
                "attention": (False, True),
            },
        ),
    ],
)
def test_flags_are_set_for_a_job_on_cuda_and_put_back(
    device: torch.device, deterministic: bool, changed: dict[str, Any]
) -> None:
    with NumericsSettings(Recipe(deterministic=deterministic), device).use_numerics_flags():
        inside = read_flags()
    assert inside == {**BEFORE, **changed}
    assert read_flags() == BEFORE


NO_KERNEL = (
    "{} does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True, warn_only=True)'."
)


@pytest.mark.parametrize(
    ("warning", "operation"),
    [
        (NO_KERNEL.format("scatter_add_cuda_kernel"), "scatter_add_cuda_kernel"),
        (
            "Memory Efficient attention defaults to a non-deterministic algorithm.",
            "Memory Efficient attention",
        ),
        (
            "Deterministic behavior was enabled, but this operation is not deterministic because "
            "it uses CuBLAS",
            "cuBLAS",
        ),
        ("lr_scheduler.step() was called too early", None),
    ],
)
def test_a_warning_names_its_operation(warning: str, operation: str | None) -> None:
    assert parse_nondeterministic_operation(warning) == operation


def test_each_job_records_its_operations_once_and_shows_other_warnings() -> None:
    for _ in range(2):
        found = NumericsSettings(Recipe(), CUDA)
        with warnings.catch_warnings(record=True) as shown, found.use_numerics_flags():
            warnings.simplefilter("always")
            for name in ("index_add", "cumsum", "index_add", ""):
                warnings.warn(NO_KERNEL.format(name) if name else "another matter", stacklevel=1)
        assert found.operations == ["index_add", "cumsum"]
        assert [str(one.message) for one in shown] == ["another matter"]


@pytest.mark.parametrize(
    ("precision", "device", "format_"),
    [
        ("auto", CPU, "float32"),
        ("auto", CUDA, "bfloat16"),
        ("float32", CUDA, "float32"),
        ("bfloat16", CPU, "bfloat16"),
    ],
)
def test_auto_is_float32_on_a_cpu_and_bfloat16_on_cuda(
    precision: Any, device: Any, format_: str
) -> None:
    assert NumericsSettings(Recipe(precision=precision), device).format == format_


@pytest.mark.parametrize(
    ("precision", "capabilities", "warned"),
    [
        ("bfloat16", SLOW, 1),
        ("bfloat16", {**SLOW, "amx_bf16": True}, 0),
        ("bfloat16", {**SLOW, "avx512_bf16": True}, 0),
        ("auto", SLOW, 0),
    ],
)
def test_a_cpu_without_bfloat16_warns_that_it_is_slower(
    precision: Any, capabilities: dict[str, bool], warned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    found = list(NumericsSettings(Recipe(precision=precision), CPU).iterate_numerics_warnings())
    assert len(found) == warned and all("slower" in text for text in found)


def test_a_job_in_bfloat16_trains_in_it_and_measures_in_float32(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spy_on_calls(
        monkeypatch,
        MlpBackbone,
        "forward",
        lambda y, network, x: (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), y.dtype),
    )
    learned = bench.stream(
        2, method="der++", precision="bfloat16", data_report="warn", validation=0.25
    )
    assert set(seen) == {(True, True, torch.bfloat16), (False, False, torch.float32)}
    assert learned.result["environment"]["precision"] == "bfloat16"
    assert any("bfloat16" in line for line in learned.logged())
    assert {tensor.dtype for tensor in learned.weights.values()} == {torch.float32}


def test_a_job_in_bfloat16_resumes_to_the_same_bits(bench: Bench) -> None:
    recipe = {"method": "der++", "precision": "bfloat16"}
    bench.architecture, bench.size = {"name": "small-cnn"}, 8
    first, second = bench.learn_tasks(2, **recipe)
    again = bench.resumed(2, first, 7, 9, **recipe)
    assert again.digests == second.digests
    assert second.network_digests != bench.learn_task(2, first, method="der++").network_digests


def test_on_a_cpu_deterministic_changes_the_manifest_and_no_weight(bench: Bench) -> None:
    fixed, free = (bench.learn_task(1, deterministic=value) for value in (True, False))
    assert fixed.network_digests == free.network_digests
    found = [one.result["environment"] for one in (fixed, free)]
    assert [(e["deterministic"], e["nondeterministic"], e["precision"]) for e in found] == [
        (True, [], "float32"),
        (False, [], "float32"),
    ]
    assert any("deterministic is false" in line for line in free.logged())
    assert not any("deterministic" in line for line in fixed.logged())


@pytest.fixture
def gpu_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give jobs on the CPU the flags of a job on a GPU."""
    applied = NumericsSettings.use_numerics_flags

    def on_a_gpu(self: NumericsSettings) -> Any:
        self._device = CUDA
        return applied(self)

    monkeypatch.setattr(numerics.NumericsSettings, "use_numerics_flags", on_a_gpu)


def test_the_flags_of_a_gpu_keep_no_outdated_weights_in_bfloat16(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    recipe = {"method": "finetune", "precision": "bfloat16"}
    plain = bench.learn_task(1, **recipe)
    request.getfixturevalue("gpu_flags")
    assert bench.learn_task(1, **recipe).network_digests == plain.network_digests


@pytest.mark.slow
def test_the_flags_of_a_gpu_import_no_compiler() -> None:
    code = (
        "import sys, torch; from core.learning.numerics import NumericsSettings; "
        "from core.learning.recipe import Recipe; "
        "NumericsSettings(Recipe(), torch.device('cuda')).use_numerics_flags().__enter__(); "
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


@pytest.mark.usefixtures("gpu_flags")
def test_operations_without_a_deterministic_kernel_are_in_the_log_and_the_manifest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn_of_missing_kernel(terms: object, *_: object) -> None:
        warnings.warn(NO_KERNEL.format("some_cuda_kernel"), stacklevel=1)

    spy_on_calls(monkeypatch, TaskTrainingContext, "loss", warn_of_missing_kernel)
    learned = bench.learn_task(1)
    assert learned.result["environment"]["nondeterministic"] == ["some_cuda_kernel"]
    assert any("some_cuda_kernel" in line for line in learned.logged())


@pytest.mark.campaign
@pytest.mark.parametrize("name", registry.METHODS)
def test_every_method_resumes_to_the_same_bits_in_bfloat16(
    name: str, case_of: Callable[..., conformance.Case]
) -> None:
    case = case_of(name, registry.get_method(name).scenarios[-1])
    low = case.new_bench("small-cnn", recipe={"precision": "bfloat16"})
    conformance.check_kills(case, low, *low.learn_tasks(2, method=name))
