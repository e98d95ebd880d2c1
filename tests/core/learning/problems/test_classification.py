"""Classification as a problem: targets by name, the loss, and pictures of predictions."""

import jsonschema
import pytest
import torch
from torch.nn import functional

from core.learning.methods.method import Method
from core.learning.problems.classification import CLASSIFICATION
from core.learning.problems.problem import DataError
from core.learning.problems.registration import register_problem
from core.learning.problems.registry import PROBLEMS, get_problem


def test_labels_become_rows_by_name() -> None:
    labels = torch.tensor([0, 2, 2])
    targets = CLASSIFICATION.make_targets_from_labels(
        labels, ["cat", "elk", "ant"], ["ant", "bee", "cat"]
    )
    assert targets.tolist() == [2, 0, 0]
    assert CLASSIFICATION.list_outputs_needed_to_measure(labels, ["cat", "elk", "ant"]) == [
        "cat",
        "ant",
    ]
    with pytest.raises(DataError, match="the network does not know ant"):
        CLASSIFICATION.make_targets_from_labels(labels, ["cat", "elk", "ant"], ["cat"])


def test_the_loss_is_the_cross_entropy_over_all_classes_or_those_of_the_task() -> None:
    outputs, targets = torch.randn(5, 4), torch.tensor([1, 3, 3, 1, 1])
    assert CLASSIFICATION.loss(outputs, targets) == functional.cross_entropy(outputs, targets)
    among = CLASSIFICATION.loss(outputs, targets, torch.tensor([1, 3]))
    assert among == functional.cross_entropy(outputs[:, [1, 3]], targets // 2)


def test_scores_of_outputs_are_those_of_predictions() -> None:
    outputs, targets = torch.randn(50, 3), torch.arange(50) % 3
    predictions = CLASSIFICATION.decode(outputs, targets, 2.0)
    scores = CLASSIFICATION.score(predictions, targets)
    assert torch.equal(scores, CLASSIFICATION.score_outputs(outputs, targets))
    assert CLASSIFICATION.multiply_measure_by_image_count(scores) == int(scores.sum())
    assert CLASSIFICATION.measure(scores) == pytest.approx(int(scores.sum()) / 50)
    assert len(predictions) == 50
    again = CLASSIFICATION.read_prediction_from_tensors(predictions.to_tensors())
    assert torch.equal(CLASSIFICATION.score(again, targets), scores)


def test_a_picture_is_a_label_with_its_probability() -> None:
    outputs = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    predictions = CLASSIFICATION.decode(outputs, torch.tensor([1, 1]), 2.0)
    pictures = CLASSIFICATION.render(predictions, ["ant", "bee"])
    assert [picture["label"] for picture in pictures] == ["bee", "ant"]
    assert pictures[0]["probability"] == pytest.approx(0.731, abs=1e-3)  # of scores 1 apart
    for picture in pictures:
        jsonschema.validate(picture, CLASSIFICATION.response_schema())


def test_documents_without_a_problem_are_of_classification() -> None:
    assert get_problem(None) is get_problem("classification") is CLASSIFICATION
    assert PROBLEMS["classification"] is CLASSIFICATION


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="two problems are named 'classification'"):
        register_problem(type(CLASSIFICATION))


def test_a_method_says_if_it_can_learn_what_is_no_class() -> None:
    assert Method.needs_classes
    assert CLASSIFICATION.explain_unsupported_method(Method) == ""
