"""Sends requests to one service and keeps every answer under a title of its own."""

import hashlib
import json
import time
from collections import Counter
from typing import Any

import httpx2

from tests.before_after.answers import Normaliser

Json = dict[str, Any]
WAIT_S = 300.0


class Player:
    """A client whose answers are recorded.

    Args:
        url: of the service.
        key: the admin key.
    """

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120
        )
        self.answers: dict[str, Json] = {}
        self.requests = 0
        self._normaliser = Normaliser()
        self._chapter = ""
        self._asked: Counter[str] = Counter()

    def chapter(self, name: str) -> None:
        """Titles that follow begin with this name."""
        self._chapter = name

    def ask(self, method: str, path: str, note: str = "", **options: Any) -> httpx2.Response:
        """Send a request and keep its answer, whatever its status is.

        Args:
            note: tells it from other requests to the same path.
        """
        response = self.http.request(method, path, **options)
        title = self._title(f"{method} {path}", note)
        self.answers[title] = self._normaliser.answer(response)
        self.requests += 1
        return response

    def json(self, path: str, note: str = "") -> Any:
        """The recorded answer of a GET."""
        return self.ask("GET", path, note).json()

    def note(self, title: str, value: Any) -> None:
        """Keep a value that is no answer."""
        self.answers[self._title(title, "")] = self._normaliser.value(value)

    def download(self, path: str, *, whole: bool) -> None:
        """Keep what a download holds; with `whole` also the digest of its bytes."""
        response = self.ask("GET", path)
        if whole and response.status_code == 200:
            self.note(f"bytes of {path}", hashlib.sha256(response.content).hexdigest())

    def create(self, name: str, scenario: str, **fields: Any) -> None:
        """Create a model."""
        self.ask("POST", "/v1/models", name, json={"name": name, "scenario": scenario, **fields})
        # Methods that forget go on for all their tasks; code from before the checks refuses that,
        # and has none.
        self.http.patch(f"/v1/models/{name}", json={"gate": {"checks": "off"}})

    def submit(self, model: str, batch: tuple[str, bytes], **recipe: Any) -> str:
        """Submit a named batch, with a recipe override; returns the id of its job."""
        headers = {"Content-Type": "application/zip"}
        if recipe:
            headers["Perennial-Recipe"] = json.dumps(recipe)
        path = f"/v1/models/{model}/tasks"
        answer = self.ask(
            "POST", path, batch[0], content=batch[1], params={"name": batch[0]}, headers=headers
        )
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job"]["id"])

    def wait(self, job: str, *states: str) -> Json:
        """A job once it is in one of these states, by default once it is over; polls are not
        recorded.

        Raises:
            TimeoutError: it is not in time.
        """
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            found: Json = self.http.get(f"/v1/jobs/{job}").json()
            if found["state"] in states if states else found["is_terminal"]:
                return found
            time.sleep(0.05)
        raise TimeoutError(f"{job} is {found['state']} after {WAIT_S:.0f} s: {found['error']}")

    def wait_for_snapshot(self, job: str) -> None:
        """Until a running job has stored a snapshot."""
        end = time.monotonic() + WAIT_S
        path = f"/v1/jobs/{job}/events"
        while not self.http.get(path, params={"type": "snapshot"}).json()["items"]:
            assert time.monotonic() < end, f"{job} has no snapshot after {WAIT_S:.0f} s"
            time.sleep(0.05)

    def learn(
        self, model: str, batch: tuple[str, bytes], state: str = "succeeded", **recipe: Any
    ) -> str:
        """Send a batch and wait for the end of its job, which must be `state`; returns its id."""
        job = self.submit(model, batch, **recipe)
        found = self.wait(job)
        assert found["state"] == state, found
        return job

    def _title(self, title: str, note: str) -> str:
        words = [self._chapter, self._normaliser.text(title), note and f"({note})"]
        named = " ".join(word for word in words if word)
        self._asked[named] += 1
        return named if self._asked[named] == 1 else f"{named} — {self._asked[named]}"
