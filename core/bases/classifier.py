"""The head of an uploaded base that is a whole classifier: found, and compared with its classes."""

from collections.abc import Collection, Mapping, Sequence

from core.contract.base import ExpectedBaseTensors, UploadedClassifierDescription
from core.errors import BaseInvalid
from core.files.safetensors_header import TensorHeader

_NAMED = 5
"""Tensors that a message names."""


def validate_and_describe_base_classifier(
    tensors: Sequence[TensorHeader], expected: ExpectedBaseTensors, classes: Sequence[str]
) -> UploadedClassifierDescription:
    """Describe the classifier (backbone and head) in an uploaded file whose backbone fits its
    architecture.

    Its head is one linear layer: a weight with a row for each class, and maybe a bias.

    Raises:
        BaseInvalid: there is no such head, or it has another number of rows than there are classes.
    """
    remaining_tensors = {
        tensor.name: tensor for tensor in _find_classifier_head_tensors(tensors, expected)
    }
    weights = [name for name in remaining_tensors if name.endswith(".weight")]
    if len(weights) != 1:
        raise _make_missing_head_error(remaining_tensors, expected)
    head = weights[0].removesuffix(".weight")
    weight, bias = remaining_tensors.pop(weights[0]), remaining_tensors.pop(f"{head}.bias", None)
    width, rows = expected["width"], weight.shape[:1]
    fits = len(weight.shape) == 2 and weight.shape[1] == width
    # A tensor beside one weight and its bias means that the head is more than a linear layer.
    if remaining_tensors or not fits or (bias is not None and bias.shape != rows):
        raise _make_missing_head_error([*remaining_tensors, *weights], expected)
    for tensor in (weight, bias):
        if tensor is not None and tensor.dtype != "F32":
            raise BaseInvalid(
                f"Tensor {tensor.name!r} has dtype {tensor.dtype}, not F32. Convert the model by "
                "model.float(), and save it again.",
                fields=[{"field": tensor.name, "message": f"has dtype {tensor.dtype}, not F32"}],
            )
    if rows[0] != len(classes):
        raise BaseInvalid(
            f"The classifier ({weight.name}) has {rows[0]} rows, and classes has {len(classes)} "
            "names. Send one name for each row, in the order of the rows.",
            fields=[{"field": "classes", "message": f"must have {rows[0]} names"}],
        )
    return {"classes": list(classes), "head": head, "stages": expected["stages"]}


def drop_head_tensors_of_classifier(
    tensors: Sequence[TensorHeader], expected: ExpectedBaseTensors
) -> list[TensorHeader]:
    """Return the tensors of a whole classifier without those of its head."""
    head = {tensor.name for tensor in _find_classifier_head_tensors(tensors, expected)}
    return [tensor for tensor in tensors if tensor.name not in head]


def _find_classifier_head_tensors(
    tensors: Sequence[TensorHeader], expected: ExpectedBaseTensors
) -> list[TensorHeader]:
    """Return the tensors of a file that belong to the head of its classifier, by the names that the
    architecture uses.

    An architecture of this service alone names none: there, it is the last module by name that the
    backbone lacks.
    """
    prefixes = tuple(name for name in expected["ignored"] if name.endswith("."))
    unexpected = [tensor for tensor in tensors if tensor.name not in expected["tensors"]]
    if prefixes:
        return [tensor for tensor in unexpected if tensor.name.startswith(prefixes)]
    modules = {tensor.name.rpartition(".")[0] for tensor in unexpected}
    return unexpected if len(modules) == 1 else []


def _make_missing_head_error(
    tensor_names: Collection[str] | Mapping[str, TensorHeader], expected: ExpectedBaseTensors
) -> BaseInvalid:
    """Return the error for an uploaded classifier whose head cannot be found in the file."""
    prefixes = [name for name in expected["ignored"] if name.endswith(".")]
    names = " or ".join(f"{prefix}weight" for prefix in prefixes[:_NAMED]) or "fc.weight"
    listed = ", ".join(sorted(tensor_names)[:_NAMED])
    fact = f"has {listed} in its place" if listed else "has none"
    return BaseInvalid(
        f"A classifier needs one linear layer after the backbone, {names} of the shape classes × "
        f"{expected['width']}, and maybe a bias; the file {fact}. Save the whole state dict, or "
        "send the file without classes, as a base.",
        fields=[{"field": "classes", "message": "the file has no such classifier"}],
    )
