"""Responses to every kind of upload, and whether the body was read before: one row for each.

An answer is its status and the type of its problem, and `unread` if no byte of the body was
requested. It also names which of the headers Location, Retry-After and Idempotency-Replayed it has.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.bases import expected_base
from core.settings import Settings
from tests.api.conftest import Make, create_api_key, serve_api, serve_copy
from tests.api.routes.test_bases import TENSORS
from tests.api.routes.test_bases import build_weights_file as small_base

TASKS = "/v1/models/birds/tasks"
BASES = "/v1/bases?architecture=mlp"
FORM = {"content-type": "multipart/form-data; boundary=xx"}
SAFETENSORS = {"content-type": "application/safetensors"}
LARGE = 1 << 40
NO_ZIP = b"hello, this is no archive at all"
BROKEN_ZIP = b"PK\x03\x04" + bytes(2000)


@dataclass(frozen=True)
class Sent:
    """A request.

    Attributes:
        body: `good` and `other` stand for an archive, or for a base.
        length: the declared length; None: that of the body; -1: none, so that the body is chunked.
        before: an upload that was answered before.
        settings: settings that are changed for the request.
    """

    path: str = TASKS
    body: bytes | str = "good"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    before: "Sent | None" = None
    settings: dict[str, int] = field(default_factory=dict)
    key: str = "write"


def build_form_part(name: str, data: bytes, more: bytes = b"") -> bytes:
    """Build one part of a form with the boundary xx."""
    return b'--xx\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (
        name.encode(),
        more,
        data,
    )


def build_digest_header(data: bytes) -> dict[str, str]:
    return {
        "Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"
    }


def build_idempotency_header(key: str = "k", **more: str) -> dict[str, str]:
    return {"Idempotency-Key": key, **more}


def build_keyed_request(path: str = TASKS, body: bytes | str = "good", **more: str) -> Sent:
    return Sent(path, body, build_idempotency_header(**more))


def build_recipe_header(text: str) -> dict[str, str]:
    return {"Perennial-Recipe": text}


ONLY, FULL = f"{TASKS}?validate=only", f"{TASKS}?validate=full"
END = b"--xx--\r\n"
TAKEN = "202 location retry-after"
AGAIN, BUSY = f"{TAKEN} idempotency-replayed", "429 too-many-requests unread retry-after"
OTHERWISE = "422 idempotency-mismatch unread"
ROWS: list[tuple[str, Sent, str]] = [
    # An archive as it should be
    ("a zip", Sent(), TAKEN),
    ("a zip in chunks", Sent(length=-1), TAKEN),
    ("a zip of a declared type", Sent(headers={"content-type": "application/zip"}), TAKEN),
    ("a zip of any bytes", Sent(headers={"content-type": "application/octet-stream"}), TAKEN),
    ("a zip in capitals", Sent(headers={"content-type": "APPLICATION/ZIP; a=b"}), TAKEN),
    ("a check of names", Sent(ONLY), "200"),
    ("a check of images", Sent(FULL), TAKEN),
    ("a zip with a recipe", Sent(headers=build_recipe_header('{"epochs": 2}')), TAKEN),
    ("a form", Sent(body="form", headers=FORM), TAKEN),
    ("a form in chunks", Sent(body="form", headers=FORM, length=-1), TAKEN),
    ("a form with a recipe", Sent(body="form with recipe", headers=FORM), TAKEN),
    ("a right digest", Sent(headers={"Content-Digest": "good"}), TAKEN),
    ("a right digest of several", Sent(headers={"Content-Digest": "several"}), TAKEN),
    # Who asks
    ("no key", Sent(key="none"), "401 not-authenticated unread"),
    ("a wrong key", Sent(key="wrong"), "401 not-authenticated unread"),
    ("a key that may only read", Sent(key="read"), "403 not-allowed unread"),
    ("a key that may only read, far too "
        "large", Sent(key="read", length=LARGE), "403 not-allowed unread"),
    ("another owner's model", Sent(key="stranger"), "404 not-found unread"),
    ("another owner's model, checked", Sent(ONLY, key="stranger"), "404 not-found unread"),
    ("no such model", Sent("/v1/models/none/tasks"), "404 not-found unread"),
    # What the head shows
    ("too large by its length", Sent(length=LARGE), "413 body-too-large unread"),
    ("too large, and no such "
        "model", Sent("/v1/models/none/tasks", length=LARGE), "413 body-too-large unread"),
    ("too large, and a wrong recipe", Sent(length=LARGE, headers=build_recipe_header("{")), "413 body-too-large "
        "unread"),
    ("a length that is no number", Sent(headers={"content-length": "many"}), "422 invalid unread"),
    ("compressed on its way", Sent(headers={"content-encoding": "gzip"}), "415 unsupported-type "
        "unread"),
    *(
        (f"the digest {text}", Sent(headers={"Content-Digest": text}), "422 invalid unread")
        for text in ("sha-256=abc", "sha-256=::", "sha-256=:AAAA:", "sha-256=:%%%%:")
    ),
    ("a form without a "
        "boundary", Sent(headers={"content-type": "multipart/form-data"}), "422 invalid unread"),
    ("a boundary of 71", Sent(headers={"content-type": f"multipart/form-data; "
        f"boundary={'x' * 71}"}),
     "422 invalid unread"),
    ("an unknown query", Sent(f"{TASKS}?colour=red"), "422 invalid unread"),
    ("a wrong policy", Sent(f"{TASKS}?duplicates_policy=merge"), "422 invalid unread"),
    ("a wrong policy, far too large", Sent(f"{TASKS}?duplicates_policy=merge", length=LARGE), "422 invalid unread"),
    ("a wrong check", Sent(f"{TASKS}?validate=some"), "422 invalid unread"),
    ("an empty name", Sent(f"{TASKS}?name="), "422 invalid unread"),
    ("a recipe that is no JSON", Sent(headers=build_recipe_header("{")), "422 invalid unread"),
    ("a recipe that is no strict JSON", Sent(headers=build_recipe_header('{"a": NaN}')), "422 invalid unread"),
    ("a recipe that is a number", Sent(headers=build_recipe_header("1")), "422 invalid-recipe unread"),
    ("a recipe that is a list", Sent(headers=build_recipe_header("[]")), "422 invalid-recipe unread"),
    ("a recipe of 70,000 bytes", Sent(headers=build_recipe_header(f'"{"x" * 70_000}"')), "422 invalid-recipe "
        "unread"),
    ("a recipe and a key that are "
        "none", Sent(headers={**build_recipe_header("[]"), **build_idempotency_header("a b")}), "422 invalid unread"),
    ("an idempotency key with a blank", Sent(headers=build_idempotency_header("a b")), "422 invalid unread"),
    ("a check with such a key", Sent(ONLY, headers=build_idempotency_header("a b")), "422 invalid unread"),
    ("an idempotency key of 256", Sent(headers=build_idempotency_header("k" * 256)), "422 invalid unread"),
    ("no place for one more upload", Sent(settings={"max_uploads": 0}), BUSY),
    ("no place, and no such "
        "model", Sent("/v1/models/none/tasks", settings={"max_uploads": 0}), BUSY),
    ("one job too many", Sent(before=Sent(), settings={"max_open_jobs": 1}), BUSY),
    ("one check too many", Sent(FULL, before=Sent(), settings={"max_open_jobs": 1}), BUSY),
    ("a look, one job too many", Sent(ONLY, before=Sent(), settings={"max_open_jobs": 1}), BUSY),
    ("more than an owner may store", Sent(settings={"max_owner_bytes": 10}), "413 body-too-large "
        "unread"),
    ("more than that, in "
        "chunks", Sent(settings={"max_owner_bytes": 10}, length=-1), "413 body-too-large"),
    ("a look at more than that", Sent(ONLY, settings={"max_owner_bytes": 10}), "200"),
    ("no room left", Sent(before=Sent(), settings={"max_owner_bytes": 1000}), "429 storage-full "
        "unread retry-after"),
    # What the body shows
    ("nothing", Sent(body=b""), "422 archive-invalid"),
    ("no archive", Sent(body=NO_ZIP), "415 unsupported-type"),
    ("no archive, checked", Sent(FULL, body=NO_ZIP), "415 unsupported-type"),
    ("a broken zip", Sent(body=BROKEN_ZIP), "422 archive-invalid"),
    ("a broken zip, looked at", Sent(ONLY, body=BROKEN_ZIP), "422 archive-invalid"),
    ("not the declared "
        "type", Sent(headers={"content-type": "application/x-tar"}), "415 unsupported-type"),
    ("a type that is not taken", Sent(headers={"content-type": "text/plain"}), "415 unsupported-type"),
    ("shorter than declared", Sent(length=100_000), "400 body-truncated"),
    ("longer than the limit, in "
        "chunks", Sent(length=-1, settings={"max_body_bytes": 100}), "413 body-too-large"),
    ("another digest", Sent(headers=build_digest_header(b"other")), "422 digest-mismatch"),
    ("a recipe of no epochs", Sent(headers=build_recipe_header('{"epochs": 0}')), "422 invalid-recipe"),
    ("a method that does not "
        "exist", Sent(headers=build_recipe_header('{"method": "none"}')), "422 invalid-recipe"),
    ("classes that the model cannot learn", Sent("/v1/models/fixed/tasks"), "422 labels-invalid"),
    ("such classes, checked", Sent("/v1/models/fixed/tasks?validate=full"), "422 labels-invalid"),
    # What a form shows
    ("an empty form", Sent(body=b"", headers=FORM), "400 body-truncated"),
    ("a form that ends in its boundary", Sent(body=b"--xx", headers=FORM), "400 body-truncated"),
    ("a form of an empty "
        "file", Sent(body=build_form_part("file", b"") + END, headers=FORM), "422 archive-invalid"),
    ("a form of no "
        "archive", Sent(body=build_form_part("file", NO_ZIP) + END, headers=FORM), "415 unsupported-type"),
    ("a form of a long line", Sent(body=b"--xx\r\n" + b"A" * 10_000, headers=FORM), "422 invalid"),
    ("a form that does not "
        "end", Sent(body=build_form_part("file", BROKEN_ZIP), headers=FORM), "400 body-truncated"),
    ("a form of another boundary", Sent(body=b"--yy\r\n", headers=FORM), "422 invalid"),
    ("a form without a file", Sent(body=build_form_part("recipe", b"{}") + END, headers=FORM), "422 invalid"),
    ("a form of two "
        "files", Sent(body=2 * build_form_part("file", BROKEN_ZIP) + END, headers=FORM), "422 invalid"),
    ("an unknown field", Sent(body=build_form_part("recipes", b"{}") + END, headers=FORM), "422 invalid"),
    ("a field that is no "
        "UTF-8", Sent(body=build_form_part("recipe", b"\xff") + END, headers=FORM), "422 invalid"),
    ("a field of 70,000 "
        "bytes", Sent(body=build_form_part("recipe", b"x" * 70_000) + END, headers=FORM), "413 body-too-large"),
    ("two recipes", Sent(body="form with recipe", headers={**FORM, **build_recipe_header("{}")}), "422 invalid-recipe"),
    ("a form with a wrong "
        "recipe", Sent(body="form with wrong recipe", headers=FORM), "422 invalid-recipe"),
    ("a part that is no field", Sent(body=b"--xx\r\n\r\nx\r\n" + END, headers=FORM), "422 invalid"),
    # The same again
    ("again", Sent(headers=build_idempotency_header(), before=build_keyed_request()), AGAIN),
    ("again, a check", Sent(FULL, headers=build_idempotency_header(), before=build_keyed_request(FULL)), AGAIN),
    ("a look twice", Sent(ONLY, headers=build_idempotency_header(), before=build_keyed_request(ONLY)), "200"),
    ("again, one job too "
        "many", Sent(headers=build_idempotency_header(), before=build_keyed_request(),
            settings={"max_open_jobs": 1}), AGAIN),
    ("again with its digest", Sent(headers=build_idempotency_header(**{"Content-Digest": "good"}),
        before=build_keyed_request()),
     "202 unread location retry-after idempotency-replayed"),
    ("again with another "
        "digest", Sent(headers={**build_idempotency_header(), **build_digest_header(b"other")},
            before=build_keyed_request()), OTHERWISE),
    ("another body under a "
        "key", Sent(body="other", headers=build_idempotency_header(), before=build_keyed_request()),
            "422 idempotency-mismatch"),
    ("another query under a "
        "key", Sent(f"{TASKS}?name=x", headers=build_idempotency_header(), before=build_keyed_request()), OTHERWISE),
    ("another recipe under a "
        "key", Sent(headers={**build_idempotency_header(), **build_recipe_header("{}")},
            before=build_keyed_request()), OTHERWISE),
    ("a check under a submit's key", Sent(FULL, headers=build_idempotency_header(),
        before=build_keyed_request()), OTHERWISE),
    ("no archive under a "
        "key", Sent(body=NO_ZIP, headers=build_idempotency_header(), before=build_keyed_request()),
            "415 unsupported-type"),
    ("after a failed one", Sent(headers=build_idempotency_header(), before=build_keyed_request(body=NO_ZIP)), TAKEN),
    ("a form again",
     Sent(body="form", headers={**build_idempotency_header(), **FORM},
         before=Sent(body="form", headers={**build_idempotency_header(), **FORM})),
     AGAIN),
    (
        "a form again with a digest of other bytes",
        Sent(body="form", headers={**build_idempotency_header(), **FORM, **build_digest_header(b"o")},
             before=Sent(body="form", headers={**build_idempotency_header(), **FORM})),
        "422 digest-mismatch",
    ),
    # Bases
    ("a base", Sent(BASES, headers=SAFETENSORS), "201 location"),
    ("a base of no declared type", Sent(BASES), "201 location"),
    ("a base as a zip", Sent(BASES, headers={"content-type": "application/zip"}), "415 unsupported-type unread"),
    ("a base in a form", Sent(BASES, body="form", headers=FORM), "201 location"),
    ("an empty base", Sent(BASES, body=b""), "422 base-invalid unread"),
    ("no base", Sent(BASES, body=NO_ZIP), "422 base-invalid"),
    ("a base too large", Sent(BASES, length=LARGE), "413 body-too-large unread"),
    ("a base of no architecture", Sent("/v1/bases?architecture=none"), "422 invalid unread"),
    ("a base of no architecture, too large", Sent("/v1/bases?architecture=none", length=LARGE),
     "413 body-too-large unread"),
    ("a base without architecture", Sent("/v1/bases"), "422 invalid unread"),
    ("a base with a key that may only read", Sent(BASES, key="read"), "403 not-allowed unread"),
    ("a base with another digest", Sent(BASES, headers=build_digest_header(b"other")), "422 digest-mismatch"),
    ("a base, and no place", Sent(BASES, settings={"max_uploads": 0}), BUSY),
    ("a base beyond what an owner may store", Sent(BASES, settings={"max_owner_bytes": 10}),
     "413 body-too-large unread"),
    ("a base again", Sent(BASES, headers=build_idempotency_header(), before=build_keyed_request(BASES)), "201 location "
        "idempotency-replayed"),
    ("a base again with its "
        "digest", Sent(BASES, headers=build_idempotency_header(**{"Content-Digest": "good"}),
            before=build_keyed_request(BASES)),
     "201 unread location idempotency-replayed"),
    ("another base under a key", Sent(BASES, body="other", headers=build_idempotency_header(),
        before=build_keyed_request(BASES)),
     "422 idempotency-mismatch"),
    ("another query of a "
        "base", Sent(f"{BASES}&channels=3", headers=build_idempotency_header(),
            before=build_keyed_request(BASES)), OTHERWISE),
    ("a key of a task for a base", Sent(BASES, headers=build_idempotency_header(),
        before=build_keyed_request()), "201 location"),
]  # fmt: skip


class Uploader:
    """A client that sends uploads and describes their answers."""

    def __init__(
        self,
        client: TestClient,
        keys: dict[str, dict[str, str]],
        bodies: dict[str, dict[str, bytes]],
    ) -> None:
        self.client = client
        self.keys = keys
        self.bodies = bodies

    def send(self, sent: Sent) -> str:
        """Send a request and return the status, problem and headers of the answer."""
        bodies = self.bodies["bases" if sent.path.startswith("/v1/bases") else "tasks"]
        body = bodies[sent.body] if isinstance(sent.body, str) else sent.body
        read = False

        def yield_body() -> Iterator[bytes]:
            nonlocal read
            read = True
            yield body

        headers = {**self.keys[sent.key], **sent.headers}
        if headers.get("Content-Digest") in ("good", "several"):
            other = "sha-512=:AAAA:, " if headers["Content-Digest"] == "several" else ""
            headers |= {"Content-Digest": other + build_digest_header(body)["Content-Digest"]}
        if sent.length != -1:
            headers = {
                "content-length": str(len(body) if sent.length is None else sent.length),
                **headers,
            }
        answer = self.client.post(sent.path, content=yield_body(), headers=headers)
        words = [str(answer.status_code)]
        if answer.status_code >= 400:
            words.append(answer.json()["type"].removeprefix("/problems/"))
        words += [] if read else ["unread"]
        words += [
            n for n in ("location", "retry-after", "idempotency-replayed") if n in answer.headers
        ]
        return " ".join(words)


Prepared = tuple[Path, dict[str, dict[str, str]], dict[str, dict[str, bytes]]]
"""A data folder with two models, the keys to it, and bodies."""


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path], archive: Make
) -> Prepared:
    folder = prepare_folder(tmp_path_factory.mktemp("prepared"))
    with serve_api(Settings(data_dir=folder, threads=1)) as client:
        keys = {
            "write": create_api_key(client, "owner"),
            "read": create_api_key(client, "owner", "read"),
        }
        keys |= {"stranger": create_api_key(client, "stranger"), "none": {"Authorization": ""}}
        keys |= {"wrong": {"Authorization": "Bearer prn_wrong"}}
        for made in (
            {"name": "birds", "scenario": "class", "architecture": "small-cnn"},
            {
                "name": "fixed",
                "scenario": "data",
                "architecture": "small-cnn",
                "classes": ["a", "z"],
            },
        ):
            assert client.post("/v1/models", json=made, headers=keys["write"]).status_code == 201
    good = archive(a=2, b=2)
    zip_part = build_form_part("file", good, b'; filename="a.zip"')
    tasks = {
        "good": good,
        "other": archive(a=2, c=3),
        "form": zip_part + END,
        "form with recipe": zip_part + build_form_part("recipe", b'{"epochs": 2}') + END,
        "form with wrong recipe": zip_part + build_form_part("recipe", b"[]") + END,
    }
    base = small_base()
    weights = {
        "good": base,
        "other": base[:-1] + b"\x01",
        "form": build_form_part("file", base) + END,
    }
    return folder, keys, {"tasks": tasks, "bases": weights}


@pytest.fixture(scope="module", autouse=True)
def expected() -> Iterator[None]:
    """Replace the shapes that the learning code expects of the bases: two small tensors."""
    tensors: dict[str, Any] = {n: {"dtype": d, "shape": s} for n, (d, s) in TENSORS.items()}
    answer = {"tensors": tensors, "optional": [], "ignored": ["head."], "parameters": 104}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_base, "_compute_expected_base_tensor_shapes", lambda _: answer)
        yield


@pytest.fixture(scope="module")
def refusing(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return an API for requests that leave nothing behind."""
    with serve_copy(prepared[0], tmp_path_factory.mktemp("refusing")) as made:
        yield made


@pytest.fixture
def uploader(
    sent: Sent, answer: str, prepared: Prepared, refusing: TestClient, tmp_path: Path
) -> Iterator[Uploader]:
    if answer[0] == "4" and sent.before is None:
        yield Uploader(refusing, *prepared[1:])
        return
    with serve_copy(prepared[0], tmp_path) as client:
        yield Uploader(client, *prepared[1:])


@pytest.mark.parametrize(("sent", "answer"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_an_upload_is_answered_and_a_refused_one_leaves_nothing(
    uploader: Uploader, sent: Sent, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sent.before is not None:
        uploader.send(sent.before)
    settings: Settings = uploader.client.app.state.settings  # type: ignore[attr-defined]
    for name, value in sent.settings.items():
        monkeypatch.setattr(settings, name, value)
    before = list_files_and_jobs(uploader.client, settings)
    assert uploader.send(sent) == answer
    assert list(settings.make_folder("spool").iterdir()) == []
    assert answer[0] != "4" or list_files_and_jobs(uploader.client, settings) == before


def list_files_and_jobs(client: TestClient, settings: Settings) -> tuple[list[Path], list[Any]]:
    """Return the files of the store, and all jobs."""
    folder = settings.data_dir / "store"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return files, client.get("/v1/jobs").json()["items"]
