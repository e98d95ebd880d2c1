"""The pages of administrators: keys whose secret is shown once, the audit trail, what is used."""

import re
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

HOSTILE = "<script>alert(1)</script>"
Publish = Callable[..., int]


def test_a_key_is_made_shown_once_used_and_revoked(logged_in: TestClient) -> None:
    form = {"name": f"nightly {HOSTILE}", "owner": "team", "scope": "read", "days": "30"}
    page = logged_in.post("/ui/admin/keys", data=form)
    [secret] = re.findall(r"<code>(pk_[a-z0-9]{12}_[A-Za-z0-9_-]{43})</code>", page.text)
    assert page.headers["cache-control"] == "no-store"
    listed = logged_in.get("/ui/admin/keys").text
    assert secret not in listed and HOSTILE not in listed and "nightly &lt;script&gt;" in listed
    asked = {"Authorization": f"Bearer {secret}", "Cookie": ""}
    me = logged_in.get("/v1/me", headers=asked).json()
    assert (me["owner"], me["scope"]) == ("team", "read") and me["expires_at"] is not None
    assert logged_in.post(f"/ui/admin/keys/{me['key']}/revoke", data={}).status_code == 303
    assert "revoked" in logged_in.get("/ui/admin/keys").text
    assert logged_in.get("/v1/me", headers=asked).status_code == 401


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "name of the key"),
        ({"owner": "No Owner"}, "owner&#39;s name must match"),
        ({"scope": "all"}, "Unknown scope"),
        ({"days": "7000"}, "in 30 days"),
        ({"scope": "predict"}, "name both"),
        ({"scope": "predict", "model": "birds", "alias": "production"}, "must expire"),
        ({"model": "birds"}, "only a key of scope predict"),
        ({"images_per_day": "many"}, "is no number"),
        ({"requests_per_s": "nan"}, "is no number"),
    ],
)
def test_a_key_that_cannot_be_is_refused_in_words(
    logged_in: TestClient, changed: dict[str, str], said: str
) -> None:
    form = {"name": "n", "owner": "team", "scope": "read", "days": "", **changed}
    answer = logged_in.post("/ui/admin/keys", data=form)
    assert answer.status_code == 422 and said in answer.text and "pk_" in answer.text
    assert len(logged_in.get("/v1/keys").json()["items"]) == 1


def test_a_key_for_a_web_page_is_made_and_its_use_shown(logged_in: TestClient, model: str) -> None:
    form = {"name": "page", "scope": "predict", "days": "30", "model": model, "alias": "production"}
    made = logged_in.post(
        "/ui/admin/keys", data={**form, "requests_per_s": "0.5", "images_per_day": "10"}
    )
    assert made.status_code == 200 and f"{model}/production, 0 of 10 images today" in made.text
    bound = logged_in.get("/v1/keys").json()["items"][-1]["bound"]
    assert (bound["requests_per_s"], bound["images_per_day"]) == (0.5, 10)


def test_the_key_of_this_session_is_not_revoked(logged_in: TestClient) -> None:
    own = logged_in.get("/v1/me").json()["key"]
    assert logged_in.post(f"/ui/admin/keys/{own}/revoke", data={}).status_code == 409
    assert "you use it now" in logged_in.get("/ui/admin/keys").text


def test_the_trail_is_read_newest_first_and_filtered(
    logged_in: TestClient, model: str, publish: Publish, text: Callable[[str], str]
) -> None:
    for _ in range(2):
        publish(model)
    logged_in.post(f"/ui/models/{model}/aliases/production/rollback", data={"reason": HOSTILE})
    page = logged_in.get("/ui/admin/audit").text
    assert HOSTILE not in page and "&lt;script&gt;" in page and "first admin key of admin" in page
    assert page.index("alias.rollback</a>") < page.index("model.create</a>")
    only = logged_in.get(f"/ui/admin/audit?model={model}&action=model.create").text
    assert "alias.rollback</a>" not in only and "model.create</a>" in only
    assert "No change fits" in logged_in.get("/ui/admin/audit?since=2999-01-01").text
    assert "No change fits" in logged_in.get("/ui/admin/audit?action=key.revoke").text
    wrong = logged_in.get("/ui/admin/audit?since=yesterday")
    assert wrong.status_code == 422 and 'role="alert"' in wrong.text
    assert logged_in.get("/ui/admin/audit?model=nothing").status_code == 404


def test_usage_is_told_by_owner_and_by_model(
    logged_in: TestClient, model: str, publish: Publish, text: Callable[[str], str]
) -> None:
    publish(model)
    assert "admin" in text(logged_in.get("/ui/admin/usage").text)
    by_model = text(logged_in.get("/ui/admin/usage?by=model").text)
    assert "birds" in by_model and "By model" in by_model
    assert logged_in.get("/ui/admin/usage?by=planet").status_code == 422


def test_who_has_logged_in_sees_whose_key_it_is(logged_in: TestClient) -> None:
    assert "The key first admin key of admin, which may admin" in logged_in.get("/ui").text


NAMES = ("/ui", "/ui/models/new", "/ui/models/birds", "/ui/models/birds/submit", "/ui/admin/keys")


def test_no_page_is_framed_and_every_page_has_the_strict_policy(
    logged_in: TestClient, model: str
) -> None:
    for path in (
        *NAMES,
        "/ui/admin/audit",
        "/ui/admin/usage",
        "/ui/models/birds/versions/0/predict",
    ):
        headers = logged_in.get(path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and headers["x-frame-options"] == "DENY", path
        assert "default-src 'none'" in policy and "unsafe" not in policy, path


def test_no_page_has_an_inline_script_or_style(logged_in: TestClient, model: str) -> None:
    for path in NAMES:
        page = logged_in.get(path).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page), path
        scripts = re.findall(r"<script([^>]*)>", page)
        assert all("src=" in one or "application/json" in one for one in scripts), path
