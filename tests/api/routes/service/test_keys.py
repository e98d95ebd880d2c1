"""Keys, audit, usage and the Prometheus page over HTTP."""

import re

from sqlalchemy import select

from core.database.tables import AccessKey


def request_key(client, **more):
    return client.post("/v1/keys", json={"name": "ci", "owner": "team", "scope": "read", **more})


def test_a_secret_is_shown_once_and_only_its_digest_is_stored(client):
    made = request_key(client).json()
    assert re.fullmatch(r"pk_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", made["secret"])
    assert made["secret"] not in client.get("/v1/keys").text
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert client.get("/v1/models", headers=headers).status_code == 200
    with client.app.state.database.read() as session:
        row = session.scalars(select(AccessKey).where(AccessKey.id == made["id"])).one()
    assert len(row.hash) == 64 and row.hash not in made["secret"]


def test_a_revoked_key_no_longer_opens_anything(client):
    made = request_key(client).json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    for _ in range(2):
        assert client.delete(f"/v1/keys/{made['id']}").status_code == 204
    assert client.get("/v1/models", headers=headers).status_code == 401
    assert client.delete("/v1/keys/key_unknown").status_code == 404


def test_a_key_cannot_revoke_itself(client):
    own = client.get("/v1/keys").json()["items"][0]["id"]
    assert client.delete(f"/v1/keys/{own}").status_code == 409
    assert client.get("/v1/keys").status_code == 200


def test_keys_of_one_new_owner_share_that_owner(client):
    assert {
        request_key(client).json()["owner"],
        request_key(client, scope="write").json()["owner"],
    } == {"team"}


def test_an_expiry_in_the_past_or_of_another_form_is_422(client):
    for at in ("2001-01-01T00:00:00Z", "tomorrow", "2030-01-01"):
        assert request_key(client, expires_at=at).status_code == 422
    made = request_key(client, expires_at="2199-01-01T00:00:00Z").json()
    assert made["expires_at"] == "2199-01-01T00:00:00.000000Z"


def test_making_and_revoking_a_key_is_audited_without_the_secret(client):
    made = request_key(client).json()
    client.delete(f"/v1/keys/{made['id']}")
    trail = client.get("/v1/audit")
    actions = [row["action"] for row in trail.json()["items"] if row["object"] == made["id"]]
    assert actions == ["key.create", "key.revoke"] and made["secret"] not in trail.text


def test_usage_counts_a_shared_blob_once(client, model, publish):
    publish(model)
    publish(model)
    one = client.get("/v1/usage").json()["items"][0]
    parts = client.get(f"/v1/models/{model}/versions/1").json()["bytes"]
    assert one["versions"] == 3 and one["tasks"] == 2 and one["bytes"]["versions"] == parts
    owner = client.get("/v1/usage?by=owner").json()["items"][0]
    assert (
        owner["owner"] == "admin" and owner["models"] == 1 and owner["bytes"]["versions"] == parts
    )


def test_the_prometheus_page_names_routes_by_template_and_every_state(client, model):
    client.get(f"/v1/models/{model}")
    client.get("/v1/nothing/here")
    page = client.get("/metrics")
    assert page.headers["Content-Type"].startswith("text/plain")
    assert 'route="/v1/models/{model}",status="200"' in page.text
    assert f'"/v1/models/{model}"' not in page.text and "/v1/nothing" not in page.text
    assert 'perennial_jobs{state="queued"} 0.0' in page.text
    assert "perennial_queue_oldest_seconds 0.0" in page.text and "perennial_build_info" in page.text


def test_the_prometheus_page_needs_a_key(client):
    assert client.get("/metrics", headers={"Authorization": ""}).status_code == 401
