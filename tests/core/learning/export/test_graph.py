"""Exported graphs predict like their versions, for each architecture and each kind of answer."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from bench.service.export_matrix import (
    ARCHITECTURES,
    WAYS,
    explain_unexportable_architecture,
    list_exportable_cases,
)
from bench.service.exported_networks import (
    CHANNELS,
    MLP,
    MORE,
    NORMALISE,
    QUICK,
    SMALL_CNN,
    ExportCase,
    build_analytic_export_case,
    build_head_prediction_export_case,
    build_method_with_state,
    build_nearest_mean_export_case,
    build_random_network,
)
from core.learning.catalogue import build_recipe_catalogue
from core.learning.evaluation import predicting
from core.learning.export import graph
from core.learning.export.check import (
    ExportCheckResult,
    compare_graph_with_version,
    compute_allowed_probability_differences,
)
from core.learning.export.graph import ExportFailed
from core.learning.export.probability_module import ProbabilityModule
from core.learning.torchvision_import import import_torchvision_models

CELLS = list_exportable_cases()
OFTEN = {
    "mlp": QUICK["mlp"],
    "small-cnn, a head per task": build_head_prediction_export_case(SMALL_CNN, 8, "task"),
}
"""Small versions with several kinds of answers, for the tests of each build."""
LDA = build_analytic_export_case(MLP, 8, "lda", 50)
EVERYTHING = {**QUICK, **MORE, **CELLS, "mlp, nearest mean": build_nearest_mean_export_case(MLP, 8)}


@pytest.fixture(scope="module", autouse=True)
def importable_torchvision() -> None:
    """Make torchvision importable beside a CPU build of torch, too."""
    import_torchvision_models()


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[ProbabilityModule, Path]]:
    """Return a function that exports a version: its prediction module and its ONNX graph file.

    The module is new at each call, and the graph is written once.
    """

    @cache
    def write_graph(name: str) -> Path:
        folder = tmp_path_factory.mktemp("graph")
        (file,) = graph.write_onnx_graph(
            OFTEN[name].build_prediction_module(), CHANNELS, OFTEN[name].size, folder
        )
        return folder / file

    return lambda name: (OFTEN[name].build_prediction_module(), write_graph(name))


def check_graph(path: Path, case: ExportCase) -> ExportCheckResult:
    """Check that a graph predicts like the version, in batches of 1, 3 and 17 images."""
    found = compare_graph_with_version(
        path, case.build_prediction_module(), (case.size, CHANNELS), {}, threads=1
    )
    assert found.images == 21 and found.max_difference <= found.tolerance
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", OFTEN)
def test_a_graph_answers_as_the_version_does(name: str, exported) -> None:
    check_graph(exported(name)[1], OFTEN[name])


def write_and_check(case: ExportCase, folder: Path) -> ExportCheckResult:
    (name,) = graph.write_onnx_graph(case.build_prediction_module(), CHANNELS, case.size, folder)
    return check_graph(folder / name, case)


@pytest.mark.slow
def test_a_linearised_network_may_differ_by_more(tmp_path: Path) -> None:
    assert write_and_check(CELLS["mlp, linearised"], tmp_path).tolerance == 1e-3


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", EVERYTHING)
def test_every_kind_of_version_is_exported(name: str, tmp_path: Path) -> None:
    """Each build exports the versions of `OFTEN`, an analytic one and a linearised one."""
    write_and_check(EVERYTHING[name], tmp_path)
    check_bytes(EVERYTHING[name], tmp_path / "model.onnx", tmp_path)


def check_bytes(case: ExportCase, path: Path, folder: Path) -> None:
    data = path.read_bytes()
    (again,) = graph.write_onnx_graph(case.build_prediction_module(), CHANNELS, case.size, folder)
    assert (folder / again).read_bytes() == data
    source = b"/" + Path(torch.__file__).parts[-2].encode() + b"/"
    assert source not in data, "a source of this machine is named"


@pytest.mark.slow
def test_a_graph_that_is_written_again_has_the_same_bytes_and_names_no_source(
    exported, tmp_path
) -> None:
    check_bytes(OFTEN["mlp"], exported("mlp")[1], tmp_path)


def test_every_family_of_architectures_and_every_way_to_answer_is_in_the_matrix() -> None:
    known = build_recipe_catalogue()
    listed = {name.partition("/")[0] for name in ARCHITECTURES}
    families = {entry["family"] for entry in known["architectures"].values()}
    assert {known["architectures"][name]["family"] for name in listed} == families
    assert {f"timm/{name}" for name in known["recommended"]} <= ARCHITECTURES.keys()
    methods = known["methods"]

    def read_family_and_inference(name: str) -> tuple[str, str | None]:
        return methods[name].get("family", "plain"), methods[name]["inference"]

    assert {read_family_and_inference(name) for name in methods} == {
        read_family_and_inference(each.method) for each in WAYS.values()
    }


def test_an_architecture_that_a_method_does_not_take_has_a_reason_and_no_cell() -> None:
    reason = "vpt works on vit alone"
    assert explain_unexportable_architecture("resnet18", "prompts") == reason
    assert explain_unexportable_architecture("vit_b_32", "prompts") is None
    assert (
        explain_unexportable_architecture("timm/resnet18.a1_in1k", "linearised")
        == "dlcft does not work on timm"
    )
    assert "resnet18, prompts" not in CELLS and "vit_b_32, prompts" in CELLS


def test_the_graph_takes_pixels_and_gives_a_named_output_for_each_head(exported) -> None:
    _, path = exported("small-cnn, a head per task")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert [(each.domain, each.version) for each in model.opset_import if not each.domain] == [
        ("", 20)
    ]
    session = onnxruntime.InferenceSession(path)
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape) == ("images", "tensor(uint8)", ["batch", 3, 8, 8])
    outputs = [(each.name, each.type, each.shape) for each in session.get_outputs()]
    assert outputs == [
        ("task_1", "tensor(float)", ["batch", 2]),
        ("task_2", "tensor(float)", ["batch", 3]),
    ]


def test_held_out_images_are_asked_of_the_head_of_their_task(exported) -> None:
    answers, path = exported("small-cnn, a head per task")
    images = np.random.default_rng(1).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    found = compare_graph_with_version(
        path, answers, (8, CHANNELS), {1: images, 2: images[:5]}, threads=1
    )
    assert found.held_out_images == 32 + 5


@pytest.mark.parametrize(("moved", "most"), [(0.0, 1e-5), (1e-4, 6e-5), (0.01, 6e-3), (50.0, 1e-2)])
def test_a_probability_may_differ_by_what_rounding_does_to_its_scores(
    moved: float, most: float
) -> None:
    draw = np.random.default_rng(3)
    scores = draw.normal(size=(200, 4)) * 3
    ours = _compute_softmax(scores)
    may = compute_allowed_probability_differences(ours, np.full(200, moved, np.float32), 1e-5)
    assert may.min() >= 1e-5 and may.max() <= most
    # No probability exceeds the bound of the scores, except for float32 rounding.
    for _ in range(20):
        other = _compute_softmax(scores + draw.uniform(-moved, moved, scores.shape))
        assert (np.abs(other - ours) <= may + 1e-6)[may < 1e-2].all()


def _compute_softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (raised / raised.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("head", ["ridge", "lda", "ncm"])
def test_scores_in_double_precision_are_within_what_rounding_may_do(head: str) -> None:
    case = MORE[f"small-cnn, analytic {head} without projection"]
    network, made = case.build()
    images = torch.rand(
        17, CHANNELS, case.size, case.size, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        single = made.predict_logits(network.eval(), images, None)
        moved = made.bound_score_rounding(network, images, None)
        h, own = network.double().features(images.double(), None), made.state["own"].tensors
        h = torch.nn.functional.normalize(h) if head == "ncm" else h
        double = h @ own["weight"].double().T + own["bias"].double()
    assert ((single - double).abs().amax(1) <= moved).all() and moved.max() > 0


def test_a_graph_that_answers_otherwise_is_refused_with_both_numbers(exported) -> None:
    answers, path = exported("mlp")
    with torch.no_grad():
        answers.network.head.bias[0] += 0.1
    with pytest.raises(
        ExportFailed, match=r"a probability differs by 0\.0\d+, and 1e-05 is allowed"
    ):
        compare_graph_with_version(path, answers, (8, CHANNELS), {}, threads=1)


def test_a_version_that_rounding_alone_decides_is_refused_with_what_helps(
    exported, monkeypatch
) -> None:
    answers, path = exported("mlp")
    monkeypatch.setattr(
        answers.method,
        "bound_score_rounding",
        lambda _network, x, _task: x.new_full((len(x),), 9.0),
    )
    compare_graph_with_version(path, answers, (8, CHANNELS), {}, threads=1)
    with torch.no_grad():
        answers.network.head.bias[0] += 1
    with pytest.raises(
        ExportFailed,
        match=r"0\.01 is allowed\. .* give the model a pretrained base\. .*`safetensors`",
    ):
        compare_graph_with_version(path, answers, (8, CHANNELS), {}, threads=1)


def test_a_graph_for_one_size_of_batch_is_refused(exported, tmp_path: Path) -> None:
    answers, path = exported("mlp")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ExportFailed, match="ONNX Runtime cannot run the graph"):
        compare_graph_with_version(tmp_path / "model.onnx", answers, (8, CHANNELS), {}, threads=1)


@pytest.mark.slow
def test_what_pytorch_cannot_write_is_refused_with_its_reason(tmp_path: Path) -> None:
    built = build_random_network({"name": "mlp", "hidden": [4]}, 8)

    class Undecided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if float(x.sum()) > 0 else -x

    built.backbone.register_module("undecided", Undecided())
    forward = built.backbone.forward
    built.backbone.forward = lambda x: built.backbone.undecided(forward(x))  # type: ignore[method-assign]
    answers = ProbabilityModule(built, build_method_with_state("finetune"), NORMALISE, CHANNELS)
    with pytest.raises(ExportFailed, match="PyTorch cannot write it as an ONNX graph"):
        graph.write_onnx_graph(answers, CHANNELS, 8, tmp_path)


@pytest.mark.slow
def test_weights_that_are_too_large_for_one_file_lie_in_a_second(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(graph, "EXTERNAL_FROM_BYTES", 1000)
    case = QUICK["mlp"]
    answers = case.build_prediction_module()
    assert graph.write_onnx_graph(answers, CHANNELS, 8, tmp_path) == [
        "model.onnx",
        "model.onnx.data",
    ]
    assert (tmp_path / "model.onnx.data").stat().st_size > 1000
    found = compare_graph_with_version(
        tmp_path / "model.onnx", answers, (8, CHANNELS), {}, threads=1
    )
    assert found.max_difference <= found.tolerance


@pytest.mark.slow
def test_a_graph_divides_by_the_temperature_and_is_sure_as_the_version_is(tmp_path: Path) -> None:
    answers = LDA.build_prediction_module()
    answers.temperature, answers.sure_from = 4.0, 0.4
    (name,) = graph.write_onnx_graph(answers, CHANNELS, 8, tmp_path)
    found = compare_graph_with_version(tmp_path / name, answers, (8, CHANNELS), {}, threads=1)
    assert found.max_difference <= found.tolerance
    answers.sure_from = 0.6
    with pytest.raises(ExportFailed, match="other answers sure"):
        compare_graph_with_version(tmp_path / name, answers, (8, CHANNELS), {}, threads=1)
    answers.temperature = 2.0
    with pytest.raises(ExportFailed, match="answers otherwise"):
        compare_graph_with_version(tmp_path / name, answers, (8, CHANNELS), {}, threads=1)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_pixels_are_normalised_as_in_a_prediction(temperature: float) -> None:
    answers = QUICK["mlp"].build_prediction_module()
    answers.temperature = temperature
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    with torch.inference_mode():
        (ours,) = answers(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    _, theirs = predicting.predict_images(
        answers.network,
        images,
        None,
        NORMALISE,
        scoring=predicting.SoftmaxScoring(temperature=temperature),
    )
    assert np.array_equal(ours.numpy(), theirs)
