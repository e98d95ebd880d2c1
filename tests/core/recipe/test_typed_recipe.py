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
from tests.learning_catalogue import copy_catalogue

CATALOGUE = json.loads(json.dumps(copy_catalogue()))
WRONG = st.sampled_from([-1, 0.5, "x", True, [], {}])


def draw_mostly(*good: Any) -> st.SearchStrategy[Any]:
    """Draw mostly one of these values, at times null or a wrong one."""
    return st.one_of(*[st.sampled_from(good)] * 12, st.none(), WRONG)


HYPER = {
    "buffer": draw_mostly(1, 500, 10.0),
    "replay_batch": draw_mostly(0, 1, 32),
    "alpha": draw_mostly(0, 0.3),
    "beta": draw_mostly(0, 1.0),
    "draws": draw_mostly("separate", "shared"),
    "lambda": draw_mostly(0, 1e3),
    "gamma": draw_mostly(0, 0.95, 1.5),
    "fisher": draw_mostly("exact", "auto"),
    "examples": draw_mostly(1, 200),
    "prompts": draw_mostly(0, 10),
    "deep": draw_mostly(True, False),
    "per_task": draw_mostly(True, False),
    "head_mode": draw_mostly("bilinear", "linear"),
    "slope": draw_mostly(0, 0.01, 1),
}
NAMES = ["der++", "dlcft", "er", "ewc-online", "finetune", "vpt"]
METHOD = st.one_of(
    st.sampled_from(NAMES),
    st.fixed_dictionaries({}, optional={"name": draw_mostly(*NAMES), **HYPER}),
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
            "iota1": draw_mostly(0, 0.05, 1),
            "iota2": draw_mostly(0, 1.0),
            "gamma": draw_mostly(0, 1, 4.0),
            "granularity": draw_mostly("block", "tensor"),
            "anchor": draw_mostly("update_start", "pretrained"),
            "anchor_old_head_rows": draw_mostly(True, False),
        },
    ),
    WRONG,
)
PATCH = st.fixed_dictionaries(
    {},
    optional={
        "preset": draw_mostly("linear-probe", "olor-sgd", "olor-adam", "fast", "none-such"),
        "method": METHOD,
        "optimizer": st.one_of(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": draw_mostly("sgd", "adam", "adamw"),
                    "lr": draw_mostly(1, 0.1, 0.0),
                    "head_lr": draw_mostly(0.1),
                    "momentum": draw_mostly(0, 0.9, 1.0),
                    "schedule": draw_mostly("cosine", "constant"),
                    "warmup_steps": draw_mostly(0, 10, 10.0),
                    "clip": draw_mostly(1, 0.5),
                    "carry_state": draw_mostly(True, False),
                    "dampening": draw_mostly(0, 0.9, 1),
                    "olor": OLOR,
                },
            ),
            st.none() | WRONG,
        ),
        "depth": draw_mostly(1, 3, 5, 6),
        "head": st.one_of(
            st.fixed_dictionaries({}, optional={"init": draw_mostly("zero", "default")}), WRONG
        ),
        "epochs": draw_mostly(1, 20, 3.0),
        "batch_size": draw_mostly(1, 64),
        "sampler": draw_mostly("shuffled", "stratified"),
        "augment": draw_mostly("none", "auto", "mixup"),
        "validation": draw_mostly(0, 0.25),
        "anytime": draw_mostly(True, False),
        "train_ce": draw_mostly("masked", "global", "auto"),
        "features": draw_mostly("computed", "cached"),
        "shards": draw_mostly(1, 2, 9, 2.0),
        "data_report": draw_mostly("off", "warn", "hold"),
        "precision": draw_mostly("auto", "float32", "bfloat16"),
        "deterministic": draw_mostly(True, False),
        "merge": st.one_of(
            draw_mostly({"weight": 0.5}, {"within": 0}, {}, {"weight": 1, "within": 0.1}), WRONG
        ),
        "rebalance": st.one_of(draw_mostly({}, {"epochs": 2, "lr": 1}, {"epochs": 1.0}), WRONG),
        "seed": draw_mostly(0, 2**63 - 1, 2**63),
    },
)


def complete_recipe(patch: dict[str, Any], scenario: str) -> dict[str, Any] | None:
    try:
        return resolve_recipe(CATALOGUE, scenario, patch).recipe
    except InvalidRecipe:
        return None


def rewrite_as_typed(recipe: dict[str, Any]) -> dict[str, Any]:
    """Read a complete recipe as the job process does, and write it again."""
    read = Recipe.model_validate(recipe)
    hyper = {key: value for key, value in read.method.items() if key != "name"}
    kept = registry.get_method(read.method["name"]).Hyper.model_validate(hyper)
    method = {"name": read.method["name"], **kept.model_dump(mode="json", by_alias=True)}
    return {**read.model_dump(mode="json"), "method": method}


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(patch=PATCH, scenario=st.sampled_from(["data", "task", "class"]))
def test_the_job_process_takes_every_complete_recipe_unchanged(patch: Any, scenario: str) -> None:
    complete = complete_recipe(patch, scenario)
    if complete is not None:
        assert rewrite_as_typed(complete) == complete


@settings(max_examples=200, deadline=None, derandomize=True)
@given(patch=PATCH, scenario=st.sampled_from(["data", "task", "class"]))
def test_resolving_a_complete_recipe_changes_nothing(patch: Any, scenario: str) -> None:
    complete = complete_recipe(patch, scenario)
    if complete is not None:
        assert complete_recipe(complete, scenario) == complete


def list_boundary_values(schema: dict[str, Any]) -> list[Any]:
    """Return values around what a hyper-parameter's schema says, right and wrong ones."""
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
                patches += [{hyper: value} for value in list_boundary_values(schema)]
        for patch in patches:
            complete = complete_recipe({"method": {"name": name, **patch}}, scenario)
            if complete is not None:
                assert rewrite_as_typed(complete) == complete, patch
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
    assert complete_recipe(patch, "class") == complete_recipe(without, "class") is not None
