"""Aliases over HTTP: set, history, rollback."""

import pytest


def set_alias(client, model, version, alias="production", **more):
    return client.put(f"/v1/models/{model}/aliases/{alias}", json={"version": version, **more})


def roll_back_alias(client, model, alias="production", **more):
    return client.post(
        f"/v1/models/{model}/aliases/{alias}/rollback", json={"reason": "bad", **more}
    )


def test_an_alias_is_made_moved_and_used(client, model, publish):
    publish(model)
    assert set_alias(client, model, 0, "blue").json()["version"] == 0
    assert set_alias(client, model, 1, "blue").json()["version"] == 1
    assert client.get(f"/v1/models/{model}/versions/blue").json()["number"] == 1
    moves = client.get(f"/v1/models/{model}/aliases/blue/history").json()["items"]
    assert [(m["previous"], m["version"], m["cause"]) for m in moves] == [
        (None, 0, "set"),
        (0, 1, "set"),
    ]


@pytest.mark.parametrize("alias", ["latest", "production"])
def test_the_history_begins_with_the_model(client, model, alias):
    moves = client.get(f"/v1/models/{model}/aliases/{alias}/history").json()["items"]
    assert [(m["previous"], m["version"], m["cause"]) for m in moves] == [(None, 0, "create")]


def test_the_same_target_again_adds_no_move(client, model, publish):
    publish(model)
    set_alias(client, model, 1, "blue")
    set_alias(client, model, 1, "blue")
    assert len(client.get(f"/v1/models/{model}/aliases/blue/history").json()["items"]) == 1


@pytest.mark.parametrize("alias", ["latest", "12", "Upper", "mdl_x", "x" * 63 + "y", "-a"])
def test_names_that_no_alias_may_have_are_422(client, model, alias):
    assert set_alias(client, model, 0, alias).status_code == 422


def test_an_unknown_version_is_422(client, model):
    assert set_alias(client, model, 5).status_code == 422


def test_a_held_version_goes_to_production_only_with_a_reason(client, model, publish):
    publish(model, passed=False)
    assert set_alias(client, model, 1).status_code == 422
    assert set_alias(client, model, 1, reason="checked by hand").status_code == 200


def test_two_rollbacks_go_two_versions_back_and_never_to_one_that_cannot_answer(
    client, model, publish
):
    for _ in range(3):
        publish(model)
    assert [roll_back_alias(client, model).json()["version"] for _ in range(2)] == [2, 1]
    refused = roll_back_alias(client, model)
    assert refused.status_code == 409 and refused.json()["targets"] == [2, 3]


@pytest.mark.parametrize("how", ["rollback", "set"])
def test_production_never_goes_to_version_0_once_it_answers(client, model, publish, how):
    publish(model)
    publish(model)
    refused = (
        set_alias(client, model, 0) if how == "set" else roll_back_alias(client, model, version=0)
    )
    assert refused.status_code == 409, refused.text
    assert "cannot answer" in refused.json()["detail"] and refused.json()["targets"] == [1]


def test_a_rollback_may_name_its_target(client, model, publish):
    for _ in range(3):
        publish(model)
    answer = roll_back_alias(client, model, version=1).json()
    assert (answer["version"], answer["follows"], answer["line_head"]) == (1, False, 1)
    assert [task["task"] for task in answer["lost_tasks"]] == [2, 3]
    assert len(answer["warnings"]) == 3
    assert roll_back_alias(client, model, version=3).status_code == 409
    assert roll_back_alias(client, model, version=9).status_code == 422


def test_production_says_whether_it_follows_and_a_model_too(client, model, publish):
    publish(model)
    publish(model)
    assert client.get(f"/v1/models/{model}").json()["production_follows"] is True
    roll_back_alias(client, model)
    shown = client.get(f"/v1/models/{model}").json()
    assert shown["production_follows"] is False and shown["line_head"] == 1
    assert any("stays on version 1" in text for text in shown["warnings"])
    followed = client.post(f"/v1/models/{model}/aliases/production/follow")
    assert followed.status_code == 200 and followed.json()["follows"] is True
    assert client.get(f"/v1/models/{model}").json()["production_follows"] is True


def test_undoing_a_rollback_by_hand_resumes_following(client, model, publish):
    publish(model)
    publish(model)
    roll_back_alias(client, model)
    assert client.get(f"/v1/models/{model}/tasks/2").json()["standing"] == "rolled_back"
    assert set_alias(client, model, 2).json()["follows"] is True
    assert client.get(f"/v1/models/{model}/tasks/2").json()["standing"] == "learned"


def test_only_production_follows(client, model, publish):
    publish(model)
    set_alias(client, model, 1, "blue")
    assert client.post(f"/v1/models/{model}/aliases/blue/follow").status_code == 422
    assert client.post(f"/v1/models/{model}/aliases/none/follow").status_code == 404


def test_a_rollback_skips_targets_whose_gate_failed(client, model, publish):
    publish(model)
    publish(model, passed=False)
    publish(model)
    set_alias(client, model, 2, reason="try")
    assert roll_back_alias(client, model).json()["version"] == 3
    assert roll_back_alias(client, model).json()["version"] == 1


def test_a_rollback_without_an_earlier_target_is_409(client, model):
    answer = roll_back_alias(client, model)
    assert answer.status_code == 409 and answer.json()["type"] == "/problems/wrong-state"


def test_a_rollback_of_an_unknown_alias_is_404(client, model):
    assert roll_back_alias(client, model, "nothing").status_code == 404


def test_moves_are_audited(client, model, publish):
    publish(model)
    publish(model)
    roll_back_alias(client, model)
    actions = [row["action"] for row in client.get("/v1/audit").json()["items"]]
    assert "alias.rollback" in actions


def test_another_owner_cannot_move_an_alias(client, model, key_of):
    answer = client.put(
        f"/v1/models/{model}/aliases/x", json={"version": 0}, headers=key_of("other")
    )
    assert answer.status_code == 404


def test_an_alias_of_ones_own_is_removed_and_its_history_goes_on_when_it_is_made_again(
    client, model, publish
):
    publish(model)
    set_alias(client, model, 1, "blue")
    url = f"/v1/models/{model}/aliases/blue"
    assert client.delete(url).status_code == 204
    assert "blue" not in client.get(f"/v1/models/{model}").json()["aliases"]
    assert client.delete(url).status_code == client.get(f"{url}/history").status_code == 404
    set_alias(client, model, 0, "blue")
    assert [m["version"] for m in client.get(f"{url}/history").json()["items"]] == [1, 0]


@pytest.mark.parametrize("alias", ["production", "latest"])
def test_an_alias_that_every_model_has_stays(client, model, alias):
    refused = client.delete(f"/v1/models/{model}/aliases/{alias}")
    assert refused.status_code == 422 and "cannot be deleted" in refused.json()["detail"]
    assert alias in client.get(f"/v1/models/{model}").json()["aliases"]


def test_an_alias_of_another_owner_is_not_there_to_be_removed(client, model, publish, key_of):
    publish(model)
    set_alias(client, model, 1, "blue")
    url = f"/v1/models/{model}/aliases/blue"
    for alias in ("blue", "production", "latest"):
        asked = f"/v1/models/{model}/aliases/{alias}"
        assert client.delete(asked, headers=key_of("other")).status_code == 404
    assert client.delete(url, headers=key_of("admin", "read")).status_code == 403
    assert client.get(f"{url}/history").status_code == 200
