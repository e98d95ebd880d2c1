"""Answers of the whole API as a service may send them, made of the client's own types."""

import dataclasses
import functools
import hashlib
import io
import json
import re
import types as builtin_types
import typing
import zipfile
from collections.abc import Callable
from typing import Any, Literal, Union

from hostile_service import Reply, Request, build_http_response

from perennial import types

USUAL: dict[str, Any] = {
    "state": "succeeded",
    "outcome": "published",
    "is_terminal": True,
    "next_cursor": None,
    "waiting_for": None,
    "error": None,
    "expected_s": None,
    "disabled_because": None,
    "interval": [0.25, 0.75],
    "nfr_interval": [0.25, 0.75],
    "at": "2026-11-23T14:35:00Z",
}
"""Values that let a command come to its end."""
DEEPEST = 5
ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("GET", r"/v1/me", types.Me),
    ("GET", r"/readyz", types.Ready),
    ("GET", r"/v1/models", [types.ListedModel]),
    ("POST", r"/v1/models", types.Model),
    ("GET|PATCH", r"/v1/models/[^/?]+", types.Model),
    ("GET|POST", r"/v1/models/[^/?]+/rebase(/finish)?", types.Rebase),
    ("GET", r"/v1/models/[^/?]+/memory", types.Memory),
    ("GET", r"/v1/models/[^/?]+/tasks", [types.Task]),
    ("POST", r"/v1/models/[^/?]+/tasks\?.*validate=only", types.Report),
    ("POST", r"/v1/models/[^/?]+/tasks", types.Accepted),
    ("GET|POST", r"/v1/models/[^/?]+/tasks/\d+(/continue|/discard)?", types.Task),
    ("POST", r"/v1/models/[^/?]+/tasks/\d+/relearn", types.Job),
    ("GET", r"/v1/models/[^/?]+/tasks/\d+/images", [types.TaskImage]),
    ("POST", r"/v1/models/[^/?]+/edits\?.*validate=only", types.EditPlan),
    ("GET", r"/v1/models/[^/?]+/edits", [types.Edit]),
    ("GET|POST", r"/v1/models/[^/?]+/edits(/\d+(/undo|/purge)?)?", types.Edit),
    ("GET", r"/v1/models/[^/?]+/class-aliases", types.ClassAliasPage),
    ("GET", r"/v1/models/[^/?]+/versions", [types.Version]),
    ("GET|PATCH", r"/v1/models/[^/?]+/versions/[^/?]+", types.Version),
    ("POST", r"/v1/models/[^/?]+/versions/[^/?]+/predict", types.Predict),
    ("GET", r"/v1/models/[^/?]+/compare", types.Compare),
    ("GET", r"/v1/models/[^/?]+/compare/images", [types.ComparedImage]),
    ("GET", r"/v1/models/[^/?]+/metrics", types.Metrics),
    ("PUT|POST", r"/v1/models/[^/?]+/aliases/[^/?]+(/rollback|/follow)?", types.Alias),
    ("GET", r"/v1/jobs", [types.Job]),
    ("GET|POST", r"/v1/jobs/[^/?]+(/cancel|/pause|/resume|/retry)?", types.Job),
    ("GET|POST", r"/v1/jobs/[^/?]+/(trials|choose)", types.Trials),
    ("GET", r"/v1/jobs/[^/?]+/logs", [types.LogLine]),
    ("GET", r"/v1/methods", types.MethodList),
    ("GET", r"/v1/methods/[^/?]+", types.Method),
    ("GET", r"/v1/architectures", [types.Architecture]),
    ("GET", r"/v1/bases", [types.ListedBase]),
    ("GET|POST", r"/v1/bases(/[^/?]+)?", types.Base),
    ("GET", r"/v1/uploads", [types.Upload]),
    ("GET", r"/v1/keys", [types.Key]),
    ("POST", r"/v1/keys", types.NewKey),
    ("GET", r"/v1/audit", [types.Audit]),
    ("GET", r"/v1/usage\?.*by=model", [types.ModelUsage]),
    ("GET", r"/v1/usage", [types.OwnerUsage]),
    ("GET", r"/v1/webhooks", [types.Webhook]),
    ("POST", r"/v1/webhooks(/[^/?]+/rotate)?", types.NewWebhook),
    ("GET|PATCH", r"/v1/webhooks/[^/?]+", types.Webhook),
    ("POST", r"/v1/webhooks/[^/?]+/(test|deliveries/[^/?]+/redeliver)", types.DeliveryDetail),
    ("GET", r"/v1/webhooks/[^/?]+/deliveries", [types.Delivery]),
)
"""Method, path (with its query where that decides), and what is answered; a list: a page of a list.
"""


def find_sample_answer(method: str, target: str) -> Any:
    """Return the JSON that a request is answered with, or None if the response has no body."""
    bare = target.partition("?")[0]
    for methods, path, kind in ROUTES:
        if method in methods.split("|") and re.fullmatch(path, target if r"\?" in path else bare):
            if isinstance(kind, list):
                return {"items": [_build_whole_sample(kind[0])], "next_cursor": None}
            return _build_whole_sample(kind)
    return None


def build_event_stream() -> bytes:
    """Build a stream with a line of a log and the end of a job."""
    data = {"level": "info", "message": "it goes on"}
    event = {"id": 1, "type": "log", "at": USUAL["at"], "data": data}
    return f"id: 1\ndata: {json.dumps(event)}\n\n".encode()


def build_onnx_zip(labels: Any = None, **files: bytes) -> bytes:
    """Build a download in the format onnx.

    Args:
        files: more entries, by name.
    """
    out = io.BytesIO()
    config = {"onnx": {"inputs": {"images": {"shape": ["batch", 3, 8, 8]}}, "outputs": {}}}
    made = {
        "model.onnx": b"graph",
        "labels.json": json.dumps(
            {"probabilities": ["cat"]} if labels is None else labels
        ).encode(),
        "config.json": json.dumps(config).encode(),
        **files,
    }
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in made.items():
            # Of one time: HEAD and GET name the same bytes.
            entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            archive.writestr(
                entry, content, zipfile.ZIP_DEFLATED if name in files else zipfile.ZIP_STORED
            )
    return out.getvalue()


def answer_as_service(request: Request) -> Reply:
    """Answer as the service does."""
    bare = request.target.partition("?")[0]
    if bare.endswith("/download"):
        return build_file_answer(build_onnx_zip())(request)
    if bare.endswith("/events"):
        return build_http_response(build_event_stream(), Content_Type="text/event-stream")
    found = find_sample_answer(request.method, request.target)
    return (
        build_http_response(b"", "204 No Content")
        if found is None
        else build_http_response(json.dumps(found).encode())
    )


def build_file_answer(content: bytes, **headers: str) -> Callable[[Request], Reply]:
    """Return a function that answers HEAD and GET of a file."""
    tag = f'"{hashlib.sha256(content).hexdigest()}"'

    def answer_file_request(request: Request) -> Reply:
        whole = build_http_response(content, **{"ETag": tag, **headers})
        return whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else whole

    return answer_file_request


@functools.cache
def _build_whole_sample(kind: Any) -> Any:
    return _build_sample(kind, "", 0)


def _is_allowed(kind: Any, value: Any) -> bool:
    kinds = (
        typing.get_args(kind)
        if typing.get_origin(kind) in (Union, builtin_types.UnionType)
        else (kind,)
    )
    return any(
        type(value) is (typing.get_origin(one) or one) or value in typing.get_args(one)
        for one in kinds
    )


def _build_sample(kind: Any, name: str, depth: int) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if name in USUAL and _is_allowed(kind, USUAL[name]):
        return USUAL[name]
    if name == "predictions":
        return [_build_sample(types.Prediction, "", depth + 1)]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind) if field.name != "extra"]
        return {one.removesuffix("_"): _build_sample(hints[one], one, depth + 1) for one in names}
    if origin is Literal:
        return "delivered" if "delivered" in arguments else arguments[0]
    if origin in (Union, builtin_types.UnionType):
        is_deep, inner = depth > DEEPEST, [one for one in arguments if one is not type(None)]
        return (
            None
            if is_deep and len(inner) < len(arguments)
            else _build_sample(inner[0], name, depth)
        )
    if origin is list:
        return [] if depth > DEEPEST else [_build_sample(arguments[0], "", depth + 1)]
    if origin is dict:
        return {} if depth > DEEPEST else {"production": _build_sample(arguments[1], "", depth + 1)}
    return {int: 1, float: 0.5, str: "birds", bool: True}.get(kind)
