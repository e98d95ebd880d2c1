"""Problems that a model can learn, for processes that never load torch."""

from pydantic import JsonValue
from typing_extensions import TypedDict

CLASSIFICATION = "classification"
"""Problem of every document and row that names none: those are older, or have the default."""


class PrimaryMeasureDescription(TypedDict):
    """The primary measure of a prediction problem, in [0, 1]; `noun` is its name in sentences."""

    name: str
    noun: str
    definition: str


class ProblemTypeCatalogueEntry(TypedDict):
    """A kind of prediction problem that a model can have, such as classification.

    - `response_schema`: JSON Schema of one prediction.
    - `onnx_outputs`: names of an exported network's outputs; empty: it cannot be exported.
    - `augmentations`: those under which a label stays true; null: all.
    - `methods`, `optimizers`: by name, why it does not learn this problem; null: it does.
    """

    description: str
    source: str
    measure: PrimaryMeasureDescription
    has_classes: bool
    response_schema: dict[str, JsonValue]
    onnx_outputs: list[str]
    augmentations: list[str] | None
    methods: dict[str, str | None]
    optimizers: dict[str, str | None]
