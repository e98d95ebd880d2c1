"""Sessions: login with a key, the scope of the cookie, and the end of a session.

The cookie counts only for the pages of this service. A session ends with its time or its key.
"""

import re
import time

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from api.app import create_app
from api.authentication.access import REMEMBER_S
from core.database.session import Database
from core.database.tables import UserSession
from core.keys.sessions import IDLE_S, LIFE_S
from core.settings import Settings
from tests.api.conftest import KeyOf

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def expire_access_cache(monkeypatch: pytest.MonkeyPatch, seconds: float = REMEMBER_S + 0.1) -> None:
    """Advance the clock of the access cache, so that it forgets all callers."""
    real = time.monotonic
    monkeypatch.setattr("api.authentication.access.time.monotonic", lambda: real() + seconds)


def list_user_sessions(client: TestClient) -> list[UserSession]:
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.read() as session:
        return list(session.scalars(select(UserSession)))


def test_a_key_logs_in_and_its_text_is_in_no_cookie(browser: TestClient) -> None:
    key = browser.browser_key  # type: ignore[attr-defined]
    answer = browser.post("/ui/login", data={"key": key, "next": "/ui/models/birds?v=1"})
    assert answer.status_code == 303 and answer.headers["location"] == "/ui/models/birds?v=1"
    cookie = answer.headers["set-cookie"]
    form = r"perennial-8000=[A-Za-z0-9_-]{43}; HttpOnly; Max-Age=43200; Path=/; SameSite=strict"
    assert re.fullmatch(form, cookie)
    assert browser.get("/ui").status_code == 200
    assert browser.get("/v1/me").json()["owner"] == "admin"
    [row] = list_user_sessions(browser)
    assert browser.cookies["perennial-8000"] not in str(row.__dict__) and key not in str(
        row.__dict__
    )
    assert row.expires_at - row.created_at == LIFE_S


def test_by_https_the_cookie_is_for_this_host_and_for_tls_alone(browser: TestClient) -> None:
    browser.base_url, browser.headers["Origin"] = "https://models.example", "https://models.example"
    answer = browser.post("/ui/login", data={"key": browser.browser_key})  # type: ignore[attr-defined]
    cookie = answer.headers["set-cookie"]
    assert (
        cookie.startswith("__Host-perennial=") and "; Secure" in cookie and "Domain" not in cookie
    )
    assert browser.get("/ui").status_code == 200


def test_by_http_from_elsewhere_nobody_logs_in(browser: TestClient) -> None:
    browser.base_url, browser.headers["Origin"] = "http://models.example", "http://models.example"
    answer = browser.post("/ui/login", data={"key": browser.browser_key})  # type: ignore[attr-defined]
    assert (
        answer.status_code == 403 and "https" in answer.text and "set-cookie" not in answer.headers
    )


def test_a_wrong_key_is_told_so_and_leaves_nothing(browser: TestClient) -> None:
    for key in ("", "x", "pk_aaaaaaaaaaaa_" + "b" * 43, "pk_\0", "ü" * 90):
        answer = browser.post("/ui/login", data={"key": key})
        assert answer.status_code in (401, 422) and "set-cookie" not in answer.headers
        assert answer.headers["content-type"].startswith("text/html")
    assert list_user_sessions(browser) == []


def test_a_key_that_only_scrapes_opens_no_page(browser: TestClient, key_of: KeyOf) -> None:
    key = key_of("somebody", "scrape")["Authorization"].removeprefix("Bearer ")
    answer = browser.post("/ui/login", data={"key": key})
    assert answer.status_code == 403 and "scrape" in answer.text


def test_who_is_not_logged_in_is_led_to_the_door_and_back(browser: TestClient) -> None:
    answer = browser.get("/ui/models/birds?v=3&t=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/login?next=/ui/models/birds%3Fv%3D3%26t%3D2"
    assert 'value="/ui/models/birds?v=3&amp;t=2"' in browser.get(answer.headers["location"]).text
    assert browser.get("/v1/models").status_code == 401


@pytest.mark.parametrize(
    ("page", "back"),
    [
        ("/ui/models/birds?v=3", "/ui/models/birds%3Fv%3D3"),
        ("", "/ui"),
        ("http://[", "/ui"),
        ("https://elsewhere.example/ui/models/birds?\\", "/ui"),
    ],
)
def test_who_sends_after_the_end_of_a_session_hears_that_nothing_was_done_and_is_led_back(
    browser: TestClient, page: str, back: str
) -> None:
    answer = browser.post(
        "/ui/models/birds/aliases/production", headers={"Referer": page} if page else {}
    )
    assert (
        answer.status_code == 303
        and answer.headers["location"] == f"/ui/login?next={back}&sent=yes"
    )
    assert "What you sent was not done" in browser.get(answer.headers["location"]).text


def test_the_login_leads_to_no_other_place(browser: TestClient) -> None:
    far = (
        "https://evil.example/ui",
        "//evil.example/ui",
        "/\\evil.example",
        "/ui\\..",
        "/v1/models",
        "/uix",
        "/ui\n/x",
        "/ui/../v1/keys",
        "/ui/../../x",
        "/ui/%2e%2e/v1/keys",
        "/ui/%2E%2e%2fv1",
        "/ui/%5c%5cevil.example",
        "/ui/..%2f..%2f/evil.example",
        "/ui/x#@evil.example",
        "/ui/%0d%0aSet-Cookie:x",
        "/ui/%c3%bc",
        "/UI",
        "javascript:/ui/",
        "https:/ui/x",
    )
    for elsewhere in far:
        answer = browser.post("/ui/login", data={"key": browser.browser_key, "next": elsewhere})  # type: ignore[attr-defined]
        assert answer.headers["location"] == "/ui", elsewhere


@pytest.mark.parametrize(
    ("asked", "led"),
    [
        ("/ui/models/./birds", "/ui/models/birds"),
        ("/ui/models//birds/", "/ui/models/birds"),
        ("/ui/models/a/../birds?v=1&t=%2e%2e", "/ui/models/birds?v=1&t=%2e%2e"),
        ("/ui/models/two%20words", "/ui/models/two%20words"),
        ("/ui?after=x", "/ui?after=x"),
    ],
)
def test_the_login_leads_to_a_page_in_its_plain_form(
    browser: TestClient, asked: str, led: str
) -> None:
    answer = browser.post("/ui/login", data={"key": browser.browser_key, "next": asked})  # type: ignore[attr-defined]
    assert answer.headers["location"] == led


FOREIGN = (
    ("GET", {"Sec-Fetch-Site": "cross-site"}),
    ("GET", {"Sec-Fetch-Site": "same-site"}),
    ("GET", {"Sec-Fetch-Site": ""}),
    ("POST", {"Sec-Fetch-Site": "none"}),
    ("POST", {"Sec-Fetch-Site": "cross-site"}),
    ("POST", {"Origin": "https://evil.example"}),
    ("POST", {"Origin": "null"}),
    ("POST", {"Origin": ""}),
    ("POST", {"Origin": "http://["}),
    ("POST", {"Origin": "http://127.0.0.1:9999"}),
)


def test_the_cookie_counts_for_the_services_own_pages_alone(logged_in: TestClient) -> None:
    for method, changed in FOREIGN:
        body = {"json": {"name": "stolen", "scenario": "class"}} if method == "POST" else {}
        answer = logged_in.request(method, "/v1/models", headers=changed, **body)  # type: ignore[arg-type]
        assert answer.status_code == 403, (method, changed, answer.text)
    assert logged_in.get("/v1/models").json()["items"] == []


def test_a_cookie_counts_at_the_host_and_port_where_it_was_given(logged_in: TestClient) -> None:
    token = logged_in.cookies["perennial-8000"]
    for host in ("127.0.0.1:8001", "localhost:8000", "127.0.0.1", "[::1]:8000"):
        port = host.rpartition("]")[2].partition(":")[2] or "80"
        for name in ("perennial-8000", f"perennial-{port}", "perennial", "__Host-perennial"):
            asked = {"Host": host, "Cookie": f"{name}={token}", "Origin": f"http://{host}"}
            assert logged_in.get("/v1/me", headers=asked).status_code == 401, (host, name)
    assert logged_in.get("/v1/me").status_code == 200


def test_two_services_on_one_machine_do_not_log_each_other_out(logged_in: TestClient) -> None:
    logged_in.base_url, logged_in.headers["Origin"] = (
        "http://127.0.0.1:8001",
        "http://127.0.0.1:8001",
    )
    logged_in.post("/ui/login", data={"key": logged_in.browser_key})  # type: ignore[attr-defined]
    logged_in.post("/ui/logout", data={})
    logged_in.base_url, logged_in.headers["Origin"] = (
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000",
    )
    assert logged_in.get("/v1/me").status_code == 200


def test_a_typed_address_is_answered(logged_in: TestClient) -> None:
    assert logged_in.get("/ui", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_a_link_on_another_site_asks_once_more_from_here(browser: TestClient) -> None:
    answer = browser.get("/ui/models/birds?v=1", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'content="0;url=/ui/models/birds?v=1"' in answer.text


def test_a_link_of_the_same_site_asks_once_more_though_the_cookie_came(
    logged_in: TestClient,
) -> None:
    answer = logged_in.get("/ui/models/birds?v=1", headers={"Sec-Fetch-Site": "same-site"})
    assert answer.status_code == 200
    assert 'content="0;url=/ui/models/birds?v=1"' in answer.text


def test_a_form_of_another_site_changes_nothing_even_with_a_key(client: TestClient) -> None:
    path, evil = "/ui/models/birds/aliases/production", {"Origin": "https://evil.example"}
    answer = client.post(path, data={"version": "1"}, headers=evil)
    assert answer.status_code == 403


def test_logging_out_ends_the_session_at_once(logged_in: TestClient) -> None:
    token = logged_in.cookies["perennial-8000"]
    assert logged_in.get("/ui").status_code == 200
    assert logged_in.post("/ui/logout", data={}).status_code == 303
    assert list_user_sessions(logged_in) == [] and "perennial-8000" not in logged_in.cookies
    assert logged_in.get("/ui", headers={"Cookie": f"perennial-8000={token}"}).status_code == 303


def test_a_session_ends_with_its_key(
    browser: TestClient, key_of: KeyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = key_of("somebody", "read")["Authorization"]
    assert browser.post("/ui/login", data={"key": mine.removeprefix("Bearer ")}).status_code == 303
    assert browser.get("/ui").status_code == 200
    admin = {"Authorization": f"Bearer {browser.browser_key}"}  # type: ignore[attr-defined]
    keys = browser.get("/v1/keys", headers=admin).json()["items"]
    key = next(one["id"] for one in keys if one["prefix"] == mine.split("_")[1])
    assert browser.delete(f"/v1/keys/{key}", headers=admin).status_code == 204
    assert list_user_sessions(browser) == []
    expire_access_cache(monkeypatch)
    assert browser.get("/ui").status_code == 303


@pytest.mark.parametrize(
    "changed", [{"expires_at": 1.0}, {"seen_at": time.time() - IDLE_S - 60}], ids=["over", "idle"]
)
def test_a_session_ends_with_its_time(
    logged_in: TestClient, monkeypatch: pytest.MonkeyPatch, changed: dict[str, float]
) -> None:
    db: Database = logged_in.app.state.database  # type: ignore[attr-defined]
    with db.write() as session:
        session.execute(update(UserSession).values(**changed))
    assert logged_in.get("/ui").status_code == 303


def test_a_request_keeps_a_session_awake(settings: Settings) -> None:
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        key = (settings.data_dir / "admin-key").read_text().strip()
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8000"}
        client.post("/ui/login", data={"key": key}, headers=own)
        db = Database(settings.resolved_database_url)
        with db.write() as session:
            session.execute(update(UserSession).values(seen_at=1.0, created_at=1.0))
            session.execute(update(UserSession).values(seen_at=time.time() - 600))
        assert client.get("/ui", headers=own).status_code == 200
    with db.read() as session:  # written down at the latest when the service stops
        assert session.scalars(select(UserSession.seen_at)).one() > time.time() - 60
    db.close()


def test_no_header_passes_for_a_remembered_session(logged_in: TestClient) -> None:
    token = logged_in.cookies["perennial-8000"]
    assert logged_in.get("/ui").status_code == 200
    stranger = {"Cookie": "", "Sec-Fetch-Site": "cross-site"}
    for value in (f"session {token}", f"session\t{token}", f"Bearer {token}", token):
        answer = logged_in.get("/v1/models", headers={**stranger, "Authorization": value})
        assert answer.status_code == 401


def test_pages_run_under_a_policy_without_unsafe(logged_in: TestClient) -> None:
    for path in ("/ui", "/ui/login", "/ui/models/nothing", "/ui/nothing"):
        answer = logged_in.get(path)
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"


def test_errors_of_pages_are_pages(logged_in: TestClient) -> None:
    for path, status in (("/ui/models/nothing", 404), ("/ui/nothing", 404), ("/ui?qq=1", 422)):
        answer = logged_in.get(path)
        assert answer.status_code == status
        assert (
            answer.headers["content-type"] == "text/html; charset=utf-8" and "<h1>" in answer.text
        )
    assert "There is no model" in logged_in.get("/ui/models/nothing").text


def test_without_authentication_nobody_logs_in_and_no_other_site_changes_anything(
    settings: Settings,
) -> None:
    settings.auth = "off"
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/ui").status_code == 200
        assert client.get("/ui/login", follow_redirects=False).headers["location"] == "/ui"
        foreign = {"Sec-Fetch-Site": "cross-site"}
        body = {"name": "stolen", "scenario": "class"}
        assert client.post("/v1/models", json=body, headers=foreign).status_code == 403
        assert client.post("/v1/models", json={**body, "architecture": "mlp"}).status_code != 403
