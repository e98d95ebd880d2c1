"""Clients that watch a service while it is disturbed.

Each sends one request again and again and notes the answers. Rules for every single answer are
checked here. Its status is known, and a service that cannot act now gives a typed problem with
`Retry-After`. It never comes later than `LIMIT_S`, and a whole body never has another digest.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2

LIMIT_S = 15.0
"""Seconds in which every answer must begin and end, whatever part of the service is down."""
EVERY_S = 0.25
GIVE_UP_S = 60.0
MOST = 2
"""Maximum number of batches accepted in one fault, so that their jobs delay the lanes' little."""
KINDS = ("healthz", "readyz", "read", "predict", "download", "submit")
LATER = (503, 507)
"""Statuses that mean "not now"."""


@dataclass(frozen=True)
class Answer:
    """One answer; times are in seconds of the monotonic clock.

    Attributes:
        told: the status, or a word for the reason why there was no answer.
    """

    kind: str
    told: str
    begun: float
    seconds: float
    ready: dict[str, str]
    """Answer of `/readyz` about database, store and broker."""


class Onlookers:
    """Clients with one thread for each of `KINDS`.

    Args:
        model: one whose `latest` version predicts and can be downloaded.
        job: any job.
        probe: the model to which batches are submitted.
        batch: the batch that is submitted.
    """

    def __init__(self, url: str, key: str, model: str, job: str, probe: str, batch: bytes) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {key}"}
        self._model, self._job, self._probe, self._batch = model, job, probe, batch
        self._over = threading.Event()
        self._reads = 0
        self.predicting = threading.Lock()
        self.answers: list[Answer] = []
        self.wrong: list[str] = []
        """Answers that are never allowed."""
        self.accepted: list[str] = []
        """Ids of the jobs of accepted batches."""
        asks: dict[str, Callable[[httpx2.Client], httpx2.Response | None]] = {
            "healthz": lambda http: http.get("/healthz"),
            "readyz": lambda http: http.get("/readyz"),
            "read": self._read,
            "predict": self._predict,
            "download": self._download,
            "submit": self._submit,
        }
        self._threads = [
            threading.Thread(target=self._watch, args=[kind, asks[kind]], daemon=True)
            for kind in KINDS
        ]

    def start(self) -> None:
        """Start the threads after a first prediction.

        The start of the helper is thus not part of an outage.
        """
        with httpx2.Client(base_url=self._url, headers=self._headers, timeout=180) as http:
            self._predict(http).raise_for_status()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; a batch that is not accepted yet is submitted until it is."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def submit_some(self) -> None:
        """Submit until `MOST` more batches are accepted."""
        self._most = len(self.accepted) + MOST

    def submit_none(self) -> None:
        """Submit no more batches after the current one."""
        self._most = 0

    @property
    def is_over(self) -> bool:
        """Return whether all requests have been sent and all threads have ended."""
        return self._over.is_set() and not any(thread.is_alive() for thread in self._threads)

    def _watch(self, kind: str, ask: Callable[[httpx2.Client], httpx2.Response | None]) -> None:
        with httpx2.Client(base_url=self._url, headers=self._headers, timeout=GIVE_UP_S) as http:
            while not self._over.wait(EVERY_S) or (kind == "submit" and self._pending()):
                begun = time.monotonic()
                ready: dict[str, str] = {}
                try:
                    answer = ask(http)
                    if answer is None:
                        continue
                    told = self._judged(kind, answer)
                    if kind == "readyz":
                        ready = answer.json()
                except httpx2.TimeoutException:
                    told = "none"
                except httpx2.RemoteProtocolError as error:
                    told = "cut off"  # in the middle of a download nothing else can be said
                    if kind != "download":
                        self.wrong.append(f"{kind}: {error}")
                except httpx2.TransportError as error:
                    told = type(error).__name__
                    self.wrong.append(f"{kind}: {error!r}")
                seconds = time.monotonic() - begun
                if seconds > LIMIT_S:
                    self.wrong.append(f"{kind} took {seconds:.1f} s ({told})")
                self.answers.append(Answer(kind, told, begun, seconds, ready))

    def _judged(self, kind: str, answer: httpx2.Response) -> str:
        status = answer.status_code
        fine = status in ((202,) if kind == "submit" else (200,))
        problem = answer.headers.get("content-type") == "application/problem+json"
        if kind == "submit" and status == 409 and "in-flight" in answer.text:
            return "409"
        if kind == "readyz" and status == 503:
            return "503"
        if not fine and not (status in LATER and problem and "retry-after" in answer.headers):
            self.wrong.append(f"{kind} → {status}: {answer.text[:300]}")
        return str(status)

    def _read(self, http: httpx2.Client) -> httpx2.Response:
        """Read by the path of pollers and by the ordinary path, in turn."""
        self._reads += 1
        return http.get(
            f"/v1/jobs/{self._job}" if self._reads % 2 else f"/v1/models/{self._model}/tasks"
        )

    def _predict(self, http: httpx2.Client) -> httpx2.Response:
        images = [[[[number] * 3] * 8] * 8 for number in (10, 200)]
        path = f"/v1/models/{self._model}/versions/latest/predict"
        with self.predicting:
            return http.post(path, json={"images": images})

    def _download(self, http: httpx2.Client) -> httpx2.Response:
        answer = http.get(f"/v1/models/{self._model}/versions/latest/download")
        found = hashlib.sha256(answer.content).hexdigest()
        if answer.status_code == 200 and answer.headers["etag"] != f'"{found}"':
            self.wrong.append("a whole download has another digest")
        return answer

    def _submit(self, http: httpx2.Client) -> httpx2.Response | None:
        """Submit a batch with the same idempotency key until it is accepted."""
        if len(self.accepted) >= self._most and not self._pending():
            return None
        number = len(self.accepted)
        self._asked = number
        answer = http.post(
            f"/v1/models/{self._probe}/tasks",
            content=self._batch,
            headers={"Idempotency-Key": f"probe-{number}", "Content-Type": "application/zip"},
        )
        if answer.status_code == 202:
            found: dict[str, Any] = answer.json()
            self.accepted.append(found["job"]["id"])
            self._over.wait(1.0)
        return answer

    _asked, _most = -1, 0

    def _pending(self) -> bool:
        """Return whether the last batch was sent but not accepted yet."""
        return self._asked == len(self.accepted)
