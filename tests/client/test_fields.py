"""Keyword arguments: each by name, and what is sent of them."""

import inspect
import json
from typing import Any, get_type_hints

import pytest
import sample_answers
import stub

from api.schemas.models import ModelIn, ModelPatch
from api.schemas.owners import WebhookIn, WebhookPatch
from perennial import Perennial
from perennial._sync.resources.models import Models
from perennial._sync.resources.webhooks import Webhooks
from perennial.fields import NOT_GIVEN, ModelChanges, NewModelFields, OpenBatchOptions
from perennial.pack.kinds import KINDS
from perennial.pack.remote.bucket import BucketImages


def list_keyword_names(verb: Any, *others: str) -> set[str]:
    """Return the names of keyword arguments, without `others`, and check that none is a catch-all."""
    parameters = inspect.signature(verb).parameters.values()
    assert not [one for one in parameters if one.kind is one.VAR_KEYWORD]
    return {one.name for one in parameters} - {"self", *others}


def test_a_new_model_has_the_fields_of_the_api() -> None:
    known = list_keyword_names(Models.create, "exist_ok")
    assert (
        known
        == set(ModelIn.model_fields)
        == set(get_type_hints(NewModelFields)) | {"name", "scenario"}
    )


def test_a_model_is_changed_by_the_fields_of_the_api() -> None:
    known = list_keyword_names(Models.update, "model")
    assert known == set(ModelPatch.model_fields) == set(get_type_hints(ModelChanges))


def test_a_webhook_has_the_fields_of_the_api() -> None:
    assert list_keyword_names(Webhooks.create) == set(WebhookIn.model_fields)
    assert list_keyword_names(Webhooks.update, "webhook") == set(WebhookPatch.model_fields)


def test_options_of_a_batch_are_those_of_all_its_kinds() -> None:
    of_kinds = [
        list(inspect.signature(one).parameters)[1:] for one in (*KINDS.values(), BucketImages)
    ]
    known = {"kind"} | {name for names in of_kinds for name in names}
    assert set(get_type_hints(OpenBatchOptions)) == known - {"progress"}  # which is the verb's own


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"description": None}, {"description": None}),
        (
            {"gate": {"min_acc": None}, "tags": ("a", "b")},
            {"gate": {"min_acc": None}, "tags": ["a", "b"]},
        ),
        (
            {"on_held": "continue", "allow_lost_classes": False},
            {"on_held": "continue", "allow_lost_classes": False},
        ),
        ({"tags": None, "recipe": NOT_GIVEN}, {"tags": None}),
    ],
    ids=["nothing", "reset", "merged", "set", "not given"],
)
def test_a_change_says_what_was_given(given: dict[str, Any], sent: dict[str, Any]) -> None:
    def update_model(client: Perennial) -> None:
        client.models.update("birds", **given)

    assert capture_sent_json(update_model, "/v1/models/birds") == sent


def test_a_new_model_leaves_to_the_service_what_is_none() -> None:
    def create_model(client: Perennial) -> None:
        client.models.create(
            "birds", "data", classes=("owl", "wren"), tags=[], keep_training_data=False, gate=None
        )

    assert capture_sent_json(create_model, "/v1/models/birds") == {
        "name": "birds", "scenario": "data", "classes": ["owl", "wren"], "tags": [], "keep_training_data": False,
    }  # fmt: skip


def test_a_webhook_is_told_of_all_models_again() -> None:
    def update_webhook(client: Perennial) -> None:
        client.webhooks.update("whk_1", model=None, format="teams")

    assert capture_sent_json(update_webhook, "/v1/webhooks/whk_1") == {
        "model": None,
        "format": "teams",
    }


def test_a_name_that_is_no_field_is_refused_before_anything_is_sent() -> None:
    with stub.run_stub_with_client(lambda _: stub.Said()) as (service, client):
        with pytest.raises(TypeError, match="on_hold"):
            client.models.update("birds", on_hold="stop")  # type: ignore[call-arg]
        assert not service.asked


def test_what_was_not_given_says_so() -> None:
    assert repr(NOT_GIVEN) == "NOT_GIVEN"


def capture_sent_json(call: Any, target: str) -> Any:
    """Return the JSON that a call sends, when it is answered with the sample of `target`."""
    answer = sample_answers.find_sample_answer("GET", target)
    with stub.run_stub_with_client(lambda _: stub.Said(body=answer)) as (service, client):
        call(client)
    return json.loads(service.asked[0].body)
