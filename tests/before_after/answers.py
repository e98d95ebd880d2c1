"""Answers of the service in a form in which those of two runs compare.

Ids, times, dates, secrets and measured speeds differ from run to run; each is replaced by a token,
an id by one that says which it is (`job#3`: the third that was named). Parts that hold images of
training data are left out of lists of parts: their encoding may change, and what is in them is
compared row by row (`read_stored_parts`).
"""

import hashlib
import io
import json
import re
import zipfile
from typing import Any

import httpx2

Json = dict[str, Any]
MEMORY_TYPES = ("buffer", "exemplars")
HEADERS = ("content-type", "location", "retry-after", "accept-ranges", "allow", "www-authenticate")
PRESENT = ("etag", "repr-digest")
"""Headers of which only the presence is compared."""
MASKED = frozenset(
    {
        "images_per_s",
        "eta_s",
        "left_s",
        "seconds",
        "code_version",
        "measured_at",
        "next_cursor",
        "prefix",
    }
)
"""Fields that measure time, or that name the run or the code. So do ids that are numbers."""
_ID = re.compile(r"\b(mdl|tsk|job|ver|bas|key|own)\\?_[0-9a-z]{26}\b")
_TOKENS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "<date>"),
    (re.compile(r"\bpk_[0-9A-Za-z_-]+"), "<secret>"),
    (re.compile(r"\b[0-9.,]+ (images/s|images a second)"), "<speed>"),
    (re.compile(r"\b[0-9.,]+ (s|ms|seconds)\b"), "<duration>"),
    (re.compile(r"epoch [0-9,]+ of ([0-9,]+), step [0-9,]+ of"), r"epoch <n> of \1, step <n> of"),
    (re.compile(r"(code[ _]version\W{0,6})[0-9a-f]{12,64}"), r"\1<code>"),
)


class Normaliser:
    """Replaces what differs between runs; ids are numbered by their first appearance in one run."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """A text with tokens in place of ids, times, secrets and speeds."""
        for pattern, token in _TOKENS:
            text = pattern.sub(token, text)
        return _ID.sub(
            lambda found: self._id(found.group().replace("\\", ""), found.group(1)), text
        )

    def value(self, value: Any, key: str = "") -> Any:
        """The same for a JSON value; `key` is the field that holds it."""
        if isinstance(value, list):
            masked = key if key in MASKED else ""
            return [
                self.value(item, masked)
                for item in value
                if not (key == "parts" and _is_memory(item))
            ]
        if (key in MASKED and value is not None) or (key == "id" and isinstance(value, int)):
            return f"<{key}>"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(name): self.value(item, name)
                for name, item in _mask_progress(value).items()
            }
        return value

    def answer(self, response: httpx2.Response) -> Json:
        """`{"status", "headers", "body"}` of a response."""
        headers = {
            name: self.text(response.headers[name]) for name in HEADERS if name in response.headers
        }
        headers |= {name: "<present>" for name in PRESENT if name in response.headers}
        return {"status": response.status_code, "headers": headers, "body": self._body(response)}

    def archive(self, content: bytes) -> Json:
        """The entries of a download: weights by digest, JSON and text as they read."""
        found: Json = {}
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                entry = archive.read(name)
                if name.endswith(".json"):
                    found[name] = self.value(json.loads(entry))
                elif name.endswith(".md"):
                    found[name] = self.text(entry.decode()).splitlines()
                else:
                    found[name] = hashlib.sha256(entry).hexdigest()
        return found

    def _body(self, response: httpx2.Response) -> Any:
        kind = response.headers.get("content-type", "")
        if "json" in kind:
            return self.value(response.json())
        if kind.startswith("application/zip"):
            return self.archive(response.content)
        return {
            "sha256": hashlib.sha256(response.content).hexdigest(),
            "bytes": len(response.content),
        }

    def _id(self, found: str, prefix: str) -> str:
        if found not in self._ids:
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._ids[found] = f"{prefix}#{self._counts[prefix]}"
        return self._ids[found]


def _mask_progress(value: Json) -> Json:
    """Mask the progress of a job that is not over, since its step and share depend on time."""
    if value.get("is_terminal") is not False:
        return value
    progress = {**value["progress"], "epoch": "<epoch>", "step": "<step>"}
    return {**value, "progress": {**progress, "done": "<done>"} if "done" in progress else progress}


def _is_memory(part: Any) -> bool:
    return isinstance(part, dict) and "sha256" in part and part.get("type") in MEMORY_TYPES
