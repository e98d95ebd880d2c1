"""Both protocols from the logits of one head, and what is kept of a base."""

import torch
from safetensors.torch import load_file, save_file

from bench.experiment.readout import (
    TaskTestImages,
    TrainedBaseHeadAndTestImages,
    count_correct_on_base_test_images,
    evaluate_by_protocol,
)
from core.learning.methods import registry
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.precision import InputNormaliser
from core.learning.state import MethodState

CLASSES = ("a", "b", "c", "d", "e")


def make_network_and_test(folder, scenario="class", heads=None):
    """Return a network with random heads, a test set of its classes "d", "b", and its logits
    there.
    """
    generator = torch.Generator().manual_seed(1)
    heads = heads or HeadSpec(CLASSES)
    network = build_network(
        {"name": "mlp", "hidden": [8]}, ImageSpec(4, 1), scenario, heads, seed=3
    )
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith("head"):
                parameter.normal_(generator=generator)
    images = torch.randint(256, (300, 4, 4, 1), generator=generator).to(torch.uint8)
    labels = torch.randint(2, (300,), generator=generator)
    save_file({"images": images, "labels": labels}, folder / "test.safetensors")
    test = TaskTestImages(7, folder / "test.safetensors", ["d", "b"])
    inputs = InputNormaliser(None, 1, torch.device("cpu"))
    with torch.no_grad():
        logits = network.logits(network.features(inputs(images)), 7 if scenario == "task" else None)
    return network, test, inputs, logits, labels


def build_finetune():
    return registry.get_method("finetune")(registry.get_method("finetune").Hyper(), MethodState())


def test_one_head_gives_both_protocols(tmp_path):
    network, test, inputs, logits, labels = make_network_and_test(tmp_path)
    open_, own = evaluate_by_protocol(network, build_finetune(), inputs, [test], ["class", "task"])
    unit = torch.tensor([3, 1])[labels]
    rival = torch.tensor([1, 3])[labels]
    rows = torch.arange(300)
    assert (open_["readout"], open_["test"], open_["total"]) == ("class", 7, 300)
    assert open_["correct"] == int((logits.argmax(1) == unit).sum())
    assert own["readout"] == "task"
    assert own["correct"] == int((logits[rows, unit] > logits[rows, rival]).sum())
    assert 0 < open_["correct"] < own["correct"] < 300


def test_counts_per_class_add_up(tmp_path):
    network, test, inputs, _, labels = make_network_and_test(tmp_path)
    for row in evaluate_by_protocol(network, build_finetune(), inputs, [test], ["class", "task"]):
        totals = {name: total for name, (_, total) in row["per_class"].items()}
        assert totals == {"d": int((labels == 0).sum()), "b": int((labels == 1).sum())}
        assert sum(correct for correct, _ in row["per_class"].values()) == row["correct"]


def test_a_tie_goes_to_the_lowest_row(tmp_path):
    network, test, inputs, _, labels = make_network_and_test(tmp_path)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.zero_()
    open_, own = evaluate_by_protocol(network, build_finetune(), inputs, [test], ["class", "task"])
    assert open_["correct"] == 0  # all answer "a"
    assert own["correct"] == int((labels == 1).sum())  # "b" comes before "d"


def test_heads_per_task_answer_by_the_head_of_the_task(tmp_path):
    heads = HeadSpec(tasks=((2, ("x", "y", "z")), (7, ("b", "d"))))
    network, test, inputs, logits, labels = make_network_and_test(tmp_path, "task", heads)
    (row,) = evaluate_by_protocol(network, build_finetune(), inputs, [test], ["task"])
    assert row["correct"] == int((logits.argmax(1) == torch.tensor([1, 0])[labels]).sum())


def test_retention_puts_present_features_through_the_old_head(tmp_path):
    network, test, inputs, _, labels = make_network_and_test(tmp_path)
    generator = torch.Generator().manual_seed(9)
    head = {"head.weight": torch.randn(2, 8, generator=generator), "head.bias": torch.randn(2)}
    save_file(head, tmp_path / "head.safetensors")
    found = count_correct_on_base_test_images(
        network, inputs, TrainedBaseHeadAndTestImages(tmp_path / "head.safetensors", test)
    )
    with torch.no_grad():
        features = network.features(inputs(load_file(test.file)["images"]))
    logits = features @ head["head.weight"].T + head["head.bias"]
    assert found["correct"] == int((logits.argmax(1) == labels).sum())
