"""The plan of an experiment: data sets × scenarios × methods × depths × orders × seeds, read from a
TOML file.

Everything is checked here before the first run starts, and an error names the field. A recipe is a
JSON patch as for a model: the plan's `recipe`, then the method's, then what the method says for a
scenario.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,39}$")]
Depth = Annotated[int, Field(ge=1, le=5)]
Scenario = Literal["data", "task", "class"]
Patch = dict[str, Any]
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class PlanError(ValueError):
    """An experiment plan is invalid; the message has a line per field."""


class StrictPlanModel(BaseModel):
    """Base class of plan sections: frozen, without unknown fields or type coercion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class PlannedNormalisation(StrictPlanModel):
    """Mean and standard deviation per channel by which an experiment normalises pixels."""

    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]


class PlannedImages(StrictPlanModel):
    """Section of an experiment plan: where images come from, and which classes are used.

    `path`, below --data, is a folder of idx files as MNIST's, of zip archives, or of class folders;
    "bundled/digits" and "bundled/signed-digits" need no files. `size` and `channels` are what
    archives and folders are decoded to; idx files are as they are. `classes` picks by number in the
    order of the source, "0-4,7"; `train_per_class` and `test_per_class` pick that many images at
    random (always the same); `pad` adds rows and columns of zeros on every side.
    """

    path: str
    classes: str | None = None
    train_per_class: Annotated[int, Field(ge=1)] | None = None
    test_per_class: Annotated[int, Field(ge=1)] | None = None
    pad: Annotated[int, Field(ge=0, le=64)] = 0
    size: Annotated[int, Field(ge=4, le=512)] = 32
    channels: Literal[1, 3] = 3
    normalise: PlannedNormalisation | None = None

    @model_validator(mode="after")
    def _check_classes_are_ranges(self) -> Self:
        for part in [] if self.classes is None else self.classes.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ValueError(f'classes: {part!r} is not a number or a range: write "0-4,7"')
        return self

    def list_chosen_class_numbers(self, count: int) -> list[int]:
        """Return the chosen class numbers, of `count`, in the written order. Raises PlanError."""
        if self.classes is None:
            return list(range(count))
        out: list[int] = []
        for part in self.classes.split(","):
            first, _, last = part.strip().partition("-")
            out += range(int(first), int(last or first) + 1)
        if len(set(out)) < len(out) or max(out) >= count:
            raise PlanError(
                f"{self.path}: classes {self.classes!r} repeat or go beyond the {count} there are"
            )
        return out


class PlannedDataSet(PlannedImages):
    """Section of an experiment plan: a data set, and how it is split into a stream of tasks.

    In the data scenario: each class's training images, in an order, cut into `splits` tasks of all
    classes, with one common test set. `seeds`: some of the plan's, all by default.
    """

    name: Label
    classes_per_task: Annotated[int, Field(ge=1)] | None = None
    first_task: Annotated[int, Field(ge=1)] | None = None
    splits: Annotated[int, Field(ge=1)] | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None

    def has_split_for_scenario(self, scenario: str) -> bool:
        """Return True if the plan says how to split the data set into tasks of a scenario."""
        return (self.splits if scenario == "data" else self.classes_per_task) is not None


class PlannedBase(StrictPlanModel):
    """Section of an experiment plan: a pretrained backbone that methods may start from.

    It is trained on `images` first, or it is one of the package, by its name (`packaged`). Runs
    from that normalise as it does, whatever the data set says.
    """

    name: Label
    architecture: dict[str, Any]
    images: PlannedImages | None = None
    packaged: Literal["perennial/resnet20-cifar100"] | None = None
    recipe: Patch = {}
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _require_one_image_source(self) -> Self:
        if (self.images is None) == (self.packaged is None):
            raise ValueError(
                f"{self.name}: a base has images to be trained on, or it is one of the package"
            )
        return self


class PlannedMethod(StrictPlanModel):
    """Section of an experiment plan: a method to compare, as a recipe under a label.

    `data`, `task` and `class` are patched over `recipe` in that scenario; `scenarios` and `seeds`
    are some of the plan's, all by default. `joint` trains from the first weights on the union of
    all data so far: the upper bound, at every stage or, "last", at the last one alone. A
    `reference` takes no part in rankings and correlations; the first one is what the others are
    compared with.
    """

    name: Label
    recipe: Patch = {}
    in_data: Patch = Field(default={}, alias="data")
    in_task: Patch = Field(default={}, alias="task")
    in_class: Patch = Field(default={}, alias="class")
    base: Label | None = None
    depths: Annotated[tuple[Depth, ...], Field(min_length=1)] | None = None
    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=1)] | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None
    joint: bool | Literal["last"] = False
    reference: bool = False

    def list_recipe_patches(self, scenario: str) -> list[Patch]:
        """Return the recipe patches of the method in a scenario, in order of application."""
        return [
            self.recipe,
            {"data": self.in_data, "task": self.in_task, "class": self.in_class}[scenario],
        ]


class PublishedAccuracy(StrictPlanModel):
    """A published final accuracy (ACC) in percent."""

    method: Label
    scenario: Scenario
    mean: float
    sd: Annotated[float, Field(gt=0)]


class PublishedResults(StrictPlanModel):
    """Section of an experiment plan: published results to compare with, and their source."""

    source: str
    values: Annotated[tuple[PublishedAccuracy, ...], Field(min_length=1)]


class ExperimentPlan(StrictPlanModel):
    """Plan of an experiment: data sets, methods, bases, scenarios, orders and seeds.

    `orders` n: class orders 0 … n-1, where order 0 is the source's own. `architecture` is the
    network of methods without a base.
    """

    name: Label
    description: str
    data: Annotated[tuple[PlannedDataSet, ...], Field(min_length=1)]
    methods: Annotated[tuple[PlannedMethod, ...], Field(min_length=1)]
    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=1)] = ("class",)
    depths: Annotated[tuple[Depth, ...], Field(min_length=1)] = (5,)
    orders: Annotated[int, Field(ge=1, le=1000)] = 1
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    architecture: dict[str, Any] | None = None
    recipe: Patch = {}
    bases: tuple[PlannedBase, ...] = ()
    published: PublishedResults | None = None

    @model_validator(mode="after")
    def _check_plan_is_consistent(self) -> Self:
        for what, names in (
            ("data", [d.name for d in self.data]),
            ("methods", [m.name for m in self.methods]),
            ("bases", [b.name for b in self.bases]),
            ("scenarios", list(self.scenarios)),
            ("depths", list(self.depths)),
            ("seeds", list(self.seeds)),
        ):
            if len(set(names)) < len(names):
                raise ValueError(
                    f"{what}: something is named twice in {', '.join(map(str, names))}"
                )
        for data in self.data:
            if not any(data.has_split_for_scenario(scenario) for scenario in self.scenarios):
                raise ValueError(
                    f"data: {data.name} says neither classes_per_task (for scenarios task and "
                    "class) nor splits (for "
                    "data) for a scenario of the plan"
                )
        for scenario in self.scenarios:
            if not any(data.has_split_for_scenario(scenario) for data in self.data):
                raise ValueError(
                    f"scenarios: no data set is for the {scenario} scenario: see splits, "
                    f"classes_per_task"
                )
        for data in self.data:
            if set(data.seeds or ()) - set(self.seeds):
                raise ValueError(f"data: {data.name} names seeds that are not the plan's")
        for method in self.methods:
            if set(method.scenarios or ()) - set(self.scenarios) or set(method.seeds or ()) - set(
                self.seeds
            ):
                raise ValueError(
                    f"methods: {method.name} names scenarios or seeds that are not the plan's"
                )
            if method.base is not None:
                self._check_base_fits_data_sets(method)
            elif self.architecture is None:
                raise ValueError(
                    f"methods: {method.name} has no base, so the plan must name an architecture"
                )
            if method.joint and any(
                "method" in patch
                for patch in (method.recipe, method.in_data, method.in_task, method.in_class)
            ):
                raise ValueError(f"methods: {method.name} is joint: its recipe names no method")
        for value in self.published.values if self.published else ():
            if value.method not in {m.name for m in self.methods}:
                raise ValueError(f"published: no method is named {value.method!r}")
        return self

    def _check_base_fits_data_sets(self, method: PlannedMethod) -> None:
        matching_bases = [base for base in self.bases if base.name == method.base]
        if not matching_bases:
            raise ValueError(
                f"methods: {method.name} names the base {method.base!r}, which is not in bases"
            )
        if matching_bases[0].images is None:
            return
        for data in self.data:
            for name in ("normalise", "size", "channels", "pad"):
                if getattr(data, name) != getattr(matching_bases[0].images, name):
                    raise ValueError(
                        f"data: {data.name} and the base {method.base} differ in {name}"
                    )

    def get_method_architecture(self, method: PlannedMethod) -> dict[str, Any]:
        """Return the network architecture that a method trains: that of its base, else the plan's."""
        base_architectures = [base.architecture for base in self.bases if base.name == method.base]
        return base_architectures[0] if base_architectures else self.architecture or {}


def read_plan_file(path: Path) -> ExperimentPlan:
    """Read an experiment plan from a TOML file. Raises PlanError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        # Through JSON: its strict mode takes arrays for tuples and whole numbers for floats,
        # nothing else.
        return ExperimentPlan.model_validate_json(json.dumps(content))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise PlanError(
            "\n".join(f"{path}: {line}" for line in _format_validation_errors(error))
        ) from None
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise PlanError(f"{path}: {error}") from None


def _format_validation_errors(error: ValidationError) -> list[str]:
    lines = []
    for one in error.errors():
        where = ".".join(str(part) for part in one["loc"])
        message = one["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {message}" if where else message)
    return lines
