"""tus 1.0.0 as the client sees it, with cuts: what the service's own uploads do is tested with
them.
"""

import base64
import hashlib
from dataclasses import dataclass, field

from stub import Asked, Said, build_problem


@dataclass
class Tus:
    """Keeps one upload. `lose`: how many bytes of each of the next pieces arrive before the
    connection breaks.
    """

    lose: list[int] = field(default_factory=list)
    kept: bytearray = field(default_factory=bytearray)
    length: int = 0
    made: int = 0
    received: int = 0
    is_gone: bool = False
    submits: list[Asked] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def __call__(self, asked: Asked) -> Said:
        if asked.method == "POST" and asked.path == "/v1/uploads":
            self.length, self.made = int(asked.headers["upload-length"]), self.made + 1
            self.kept, self.is_gone = bytearray(), False
            return Said(
                201, {"id": f"upl_{self.made}"}, {"Location": f"/v1/uploads/upl_{self.made}"}
            )
        if asked.method == "GET":
            is_known = asked.path == "/v1/models/birds"
            return Said(200, {"name": "birds"}) if is_known else build_problem(404, "not-found")
        if asked.path.startswith("/v1/uploads/"):
            if self.is_gone or not asked.path.endswith(f"upl_{self.made}"):
                return build_problem(404, "not-found", f"There is no upload {asked.path}.")
            if asked.method == "DELETE":
                self.is_gone = True
                return Said(204)
            return self._form_head() if asked.method == "HEAD" else self._patch(asked)
        if asked.body[:1] == b"{" and asked.headers["idempotency-key"] not in self.keys:
            if self.is_gone:
                return build_problem(404, "not-found", f"There is no upload upl_{self.made}.")
            self.keys.add(asked.headers["idempotency-key"])
            self.is_gone = "validate=" not in asked.path  # a task has taken it
        self.submits.append(asked)
        task = {"number": 1, "classes": {}, "report": {}, "warnings": []}
        return Said(
            202, {"task": task, "job": {"id": "job_1", "model": "birds", "state": "queued"}}
        )

    def _form_head(self) -> Said:
        return Said(
            200, b"", {"Upload-Offset": str(len(self.kept)), "Upload-Length": str(self.length)}
        )

    def _patch(self, asked: Asked) -> Said:
        assert asked.headers["tus-resumable"] == "1.0.0"
        if int(asked.headers["upload-offset"]) != len(self.kept):
            return build_problem(409, "offset-mismatch")
        name, _, digest = asked.headers["upload-checksum"].partition(" ")
        assert (name, base64.b64decode(digest)) == ("sha256", hashlib.sha256(asked.body).digest())
        self.received += len(asked.body)
        if self.lose:
            self.kept += asked.body[: self.lose.pop(0)]
            return build_problem(503, "unavailable")
        self.kept += asked.body
        return Said(204, b"", {"Upload-Offset": str(len(self.kept))})
