"""Sessions on both databases: what is kept of one, and how many a key may have."""

import pytest
from sqlalchemy import func, select, update

from core.database.tables import AuditEntry, UserSession
from core.errors import NotAuthenticated
from core.keys import keys, sessions
from core.keys.sessions import MOST, combine_session_token_and_host, digest_session_token

PLACE = "127.0.0.1:8000"


@pytest.fixture
def secret(database, tmp_path):
    return keys.ensure_admin_key_and_write_file(database, tmp_path)


def count_sessions(database):
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(UserSession))


def test_a_token_is_kept_as_its_digest_alone(database, secret):
    token = sessions.begin_browser_session(database, secret, PLACE)
    assert len(token) == 43
    with database.read() as session:
        assert session.scalars(select(UserSession.hash)).all() == [
            digest_session_token(combine_session_token_and_host(token, PLACE))
        ]


def test_one_session_more_than_a_key_may_have_ends_its_oldest(database, secret):
    tokens = []
    for second in range(MOST + 2):
        tokens.append(sessions.begin_browser_session(database, secret, PLACE))
        with database.write() as session:
            session.execute(
                update(UserSession)
                .where(
                    UserSession.hash
                    == digest_session_token(combine_session_token_and_host(tokens[-1], PLACE))
                )
                .values(created_at=float(second))
            )
    with database.read() as session:
        kept = set(session.scalars(select(UserSession.hash)))
    assert len(kept) == MOST
    assert {
        digest_session_token(combine_session_token_and_host(token, PLACE)) for token in tokens[:2]
    }.isdisjoint(kept)


def test_a_login_removes_sessions_that_are_over(database, secret):
    sessions.begin_browser_session(database, secret, PLACE)
    with database.write() as session:
        session.execute(update(UserSession).values(expires_at=1.0))
    sessions.begin_browser_session(database, secret, PLACE)
    assert count_sessions(database) == 1


def test_a_wrong_key_begins_nothing(database, secret):
    for wrong in ("", "pk_x", secret[:-1] + ("a" if secret[-1] != "a" else "b")):
        with pytest.raises(NotAuthenticated):
            sessions.begin_browser_session(database, wrong, PLACE)
    assert count_sessions(database) == 0


def test_login_and_logout_are_in_the_audit_trail(database, secret):
    token = sessions.begin_browser_session(database, secret, PLACE)
    sessions.end_browser_session(database, combine_session_token_and_host(token, PLACE))
    sessions.end_browser_session(database, combine_session_token_and_host(token, PLACE))
    with database.read() as session:
        actions = session.scalars(select(AuditEntry.action).order_by(AuditEntry.id)).all()
    assert [one for one in actions if one.startswith("session")] == ["session.begin", "session.end"]
    assert count_sessions(database) == 0
