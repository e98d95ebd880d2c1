"""The API completes and checks recipes without torch; the learning code must read them the same way."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from core.errors import InvalidRecipe
from core.learn import recipe as learning
from core.learn.catalogue import catalogue
from core.requests import recipe as asking

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
            ("der++", ("buffer", "alpha", "beta", "replay_batch")),
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
        "head": st.one_of(st.fixed_dictionaries({}, optional={"init": maybe("zero", "default")}), WRONG),
        "epochs": maybe(1, 20, 3.0),
        "batch_size": maybe(1, 64),
        "sampler": maybe("shuffled", "stratified"),
        "augment": maybe("none", "auto", "mixup"),
        "validation": maybe(0, 0.25),
        "anytime": maybe(True, False),
        "train_ce": maybe("masked", "global", "auto"),
        "seed": maybe(0, 2**63 - 1, 2**63),
    },
)


def learned(patch: dict[str, Any], scenario: str) -> dict[str, Any] | None:
    try:
        return learning.resolve(patch, scenario).model_dump(mode="json", by_alias=True)
    except (learning.RecipeError, ValidationError):
        return None


def asked(patch: dict[str, Any], scenario: str) -> dict[str, Any] | None:
    try:
        return asking.resolve(CATALOGUE, scenario, patch).recipe
    except InvalidRecipe:
        return None


@settings(max_examples=600, deadline=None, derandomize=True)
@given(patch=PATCH, scenario=st.sampled_from(["data", "task", "class"]))
def test_both_complete_a_patch_to_the_same_recipe_or_both_refuse_it(patch: Any, scenario: str) -> None:
    complete = asked(patch, scenario)
    assert complete == learned(patch, scenario)
    if complete is not None:
        assert learned(complete, scenario) == complete


@settings(max_examples=300, deadline=None, derandomize=True)
@given(base=PATCH, patch=PATCH)
def test_both_merge_two_patches_in_the_same_way(base: Any, patch: Any) -> None:
    assert asking.merge_recipe(base, patch) == learning.merge(base, patch)


def plausible(schema: dict[str, Any]) -> list[Any]:
    """Values around what a hyper-parameter's schema says, right and wrong ones."""
    found: list[Any] = [None, -1, 0, 0.5, 1, 10.0, 10**9, "x", True, [], {}, *schema.get("enum", [])]
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if bound in schema:
            found += [schema[bound], schema[bound] - 1, schema[bound] + 1]
    return found


@pytest.mark.parametrize("name", sorted(CATALOGUE["methods"]))
def test_both_read_every_hyper_parameter_of_a_method_in_the_same_way(name: str) -> None:
    used = 0
    for hyper, schema in CATALOGUE["methods"][name]["schema"].get("properties", {}).items():
        for value in plausible(schema):
            for scenario in ("data", "task", "class"):
                patch = {"method": {"name": name, hyper: value}}
                complete = asked(patch, scenario)
                assert complete == learned(patch, scenario), patch
                used += complete is not None
    for scenario in ("data", "task", "class"):
        complete = asked({"method": name}, scenario)
        assert complete == learned({"method": name}, scenario)
        used += complete is not None
    assert used


@pytest.mark.parametrize(
    "patch",
    [
        {"preset": "linear-probe", "depth": None},
        {"preset": "linear-probe", "method": None},
        {"method": {"alpha": 0.2}},
        {"method": {"name": None, "alpha": 0.2}},
        {"optimizer": None, "head": {"init": None}},
        {"preset": "olor-sgd", "optimizer": {"olor": None}},
        {"optimizer": {"olor": {"iota1": 0.05, "gamma": None}}},
    ],
)
def test_a_null_leaves_the_preset_and_the_defaults(patch: dict[str, Any]) -> None:
    assert asked(patch, "class") == learned(patch, "class") is not None
