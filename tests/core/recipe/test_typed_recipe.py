"""A recipe that the resolver completes without torch, by JSON Schemas alone, the job process takes
as it is.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InvalidRecipe
from core.learning.methods import registry
from core.learning.recipe import Recipe
from core.recipe.resolve import resolve_recipe
from tests.learning_catalogue import catalogue

CATALOGUE = json.loads(json.dumps(catalogue()))
WRONG = st.sampled_from([-1, 0.5, "x", True, [], {}])


def maybe(*good: Any) -> st.SearchStrategy[Any]:
    """Mostly one of these values, at times null or a wrong one."""
    return st.one_of(*[st.sampled_from(good)] * 12, st.none(), WRONG)


HYPER = {
    "buffer": maybe(1, 500, 10.0),
    "replay_batch": maybe(0, 1, 32),
    "alpha": maybe(0, 0.3),
    "beta": maybe(0, 1.0),
    "draws": maybe("separate", "shared"),
    "lambda": maybe(0, 1e3),
    "gamma": maybe(0, 0.95, 1.5),
    "fisher": maybe("exact", "auto"),
    "examples": maybe(1, 200),
    "prompts": maybe(0, 10),
    "deep": maybe(True, False),
    "per_task": maybe(True, False),
    "head_mode": maybe("bilinear", "linear"),
    "slope": maybe(0, 0.01, 1),
}
NAMES = ["der++", "dlcft", "er", "ewc-online", "finetune", "vpt"]
METHOD = st.one_of(
    st.sampled_from(NAMES),
    st.fixed_dictionaries({}, optional={"name": maybe(*NAMES), **HYPER}),
    *[
        st.fixed_dictionaries({"name": st.just(name)}, optional={key: HYPER[key] for key in known})
        for name, known in (
            ("der++", ("buffer", "alpha", "beta", "replay_batch", "draws")),
            ("er", ("buffer", "replay_batch")),
            ("ewc-online", ("lambda", "gamma", "fisher", "examples")),
            ("vpt", ("prompts", "deep", "per_task")),
            ("dlcft", ("buffer", "lambda", "head_mode", "slope")),
        )
    ],
    st.none() | WRONG,
)
OLOR = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "iota1": maybe(0, 0.05, 1),
            "iota2": maybe(0, 1.0),
            "gamma": maybe(0, 1, 4.0),
            "granularity": maybe("block", "tensor"),
            "anchor": maybe("update_start", "pretrained"),
            "anchor_old_head_rows": maybe(True, False),
        },
    ),
    WRONG,
)
PATCH = st.fixed_dictionaries(
    {},
    optional={
        "preset": maybe("linear-probe", "olor-sgd", "olor-adam", "fast", "none-such"),
        "method": METHOD,
        "optimizer": st.one_of(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": maybe("sgd", "adam", "adamw"),
                    "lr": maybe(1, 0.1, 0.0),
                    "head_lr": maybe(0.1),
                    "momentum": maybe(0, 0.9, 1.0),
                    "schedule": maybe("cosine", "constant"),
                    "warmup_steps": maybe(0, 10, 10.0),
                    "clip": maybe(1, 0.5),
                    "carry_state": maybe(True, False),
                    "dampening": maybe(0, 0.9, 1),
                    "olor": OLOR,
                },
            ),
            st.none() | WRONG,
        ),
        "depth": maybe(1, 3, 5, 6),
        "head": st.one_of(
            st.fixed_dictionaries({}, optional={"init": maybe("zero", "default")}), WRONG
        ),
        "epochs": maybe(1, 20, 3.0),
        "batch_size": maybe(1, 64),
        "sampler": maybe("shuffled", "stratified"),
        "augment": maybe("none", "auto", "mixup"),
        "validation": maybe(0, 0.25),
        "anytime": maybe(True, False),
        "train_ce": maybe("masked", "global", "auto"),
        "features": maybe("computed", "cached"),
        "shards": maybe(1, 2, 9, 2.0),
        "data_report": maybe("off", "warn", "hold"),
        "precision": maybe("auto", "float32", "bfloat16"),
        "deterministic": maybe(True, False),
        "merge": st.one_of(
            maybe({"weight": 0.5}, {"within": 0}, {}, {"weight": 1, "within": 0.1}), WRONG
        ),
        "rebalance": st.one_of(maybe({}, {"epochs": 2, "lr": 1}, {"epochs": 1.0}), WRONG),
        "seed": maybe(0, 2**63 - 1, 2**63),
    },
)


def completed(patch: dict[str, Any], scenario: str) -> dict[str, Any] | None:
    try:
        return resolve_recipe(CATALOGUE, scenario, patch).recipe
    except InvalidRecipe:
        return None


def typed(recipe: dict[str, Any]) -> dict[str, Any]:
    """A complete recipe as the job process reads it, written again."""
    read = Recipe.model_validate(recipe)
    hyper = {key: value for key, value in read.method.items() if key != "name"}
    kept = registry.get_method(read.method["name"]).Hyper.model_validate(hyper)
    method = {"name": read.method["name"], **kept.model_dump(mode="json", by_alias=True)}
    return {**read.model_dump(mode="json"), "method": method}


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(patch=PATCH, scenario=st.sampled_from(["data", "task", "class"]))
def test_the_job_process_takes_every_complete_recipe_unchanged(patch: Any, scenario: str) -> None:
    complete = completed(patch, scenario)
    if complete is not None:
        assert typed(complete) == complete


@settings(max_examples=200, deadline=None, derandomize=True)
@given(patch=PATCH, scenario=st.sampled_from(["data", "task", "class"]))
def test_resolving_a_complete_recipe_changes_nothing(patch: Any, scenario: str) -> None:
    complete = completed(patch, scenario)
    if complete is not None:
        assert completed(complete, scenario) == complete


def plausible(schema: dict[str, Any]) -> list[Any]:
    """Values around what a hyper-parameter's schema says, right and wrong ones."""
    found: list[Any] = [
        None,
        -1,
        0,
        0.5,
        1,
        10.0,
        10**9,
        1e999,
        "x",
        True,
        [],
        {},
        *schema.get("enum", []),
    ]
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if bound in schema:
            found += [schema[bound], schema[bound] - 1, schema[bound] + 1]
    return found


@pytest.mark.parametrize("name", sorted(CATALOGUE["methods"]))
def test_the_job_process_takes_every_hyper_parameter_that_is_not_refused(name: str) -> None:
    used = 0
    for scenario in ("data", "task", "class"):
        patches: list[dict[str, Any]] = [{}]
        if not used:  # the first scenario that the method takes: a schema is the same in all
            for hyper, schema in CATALOGUE["methods"][name]["schema"].get("properties", {}).items():
                patches += [{hyper: value} for value in plausible(schema)]
        for patch in patches:
            complete = completed({"method": {"name": name, **patch}}, scenario)
            if complete is not None:
                assert typed(complete) == complete, patch
                used += 1
    assert used


@pytest.mark.parametrize(
    ("patch", "without"),
    [
        ({"preset": "linear-probe", "depth": None}, {"preset": "linear-probe"}),
        ({"preset": "linear-probe", "method": None}, {"preset": "linear-probe"}),
        ({"method": {"name": None, "alpha": 0.2}}, {"method": {"alpha": 0.2}}),
        ({"optimizer": None, "head": {"init": None}}, {}),
        ({"preset": "olor-sgd", "optimizer": {"olor": None}}, {"preset": "olor-sgd"}),
        (
            {"optimizer": {"olor": {"iota1": 0.05, "gamma": None}}},
            {"optimizer": {"olor": {"iota1": 0.05}}},
        ),
    ],
)
def test_a_null_leaves_the_preset_and_the_defaults(
    patch: dict[str, Any], without: dict[str, Any]
) -> None:
    assert completed(patch, "class") == completed(without, "class") is not None
