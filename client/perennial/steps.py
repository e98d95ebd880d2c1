"""Requests that advice names, in three forms: an HTTP request, a command of the terminal, a button.

A sentence of the service names a request as `str(ApiRequestForAdvice(…))` writes it. The command line and the
pages find it and replace it by their own form (`replace_requests_in_sentence`), so that each reader
gets a form that works there, from one source. `OPERATIONS` has every request that a sentence may name.

The service imports this module from the client, which is installed without the service.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

WHY, LEFT_OPEN = '"WHY"', "…"
"""Placeholders for a reason, in a command and in a request."""
RECIPE = "Perennial-Recipe"
_JSON = json.JSONDecoder()
_BODY = re.compile(rf"(?P<by> (?:with )?(?:{RECIPE}: )?)(?=\{{)")
# A full stop at the end belongs to the sentence, not to the request.
_REQUEST = re.compile(
    r"(?P<method>GET|POST|PUT|PATCH|DELETE) (?P<path>/v1/[A-Za-z0-9_~%/-]+(?:\.[A-Za-z0-9_~%/-]+)*)"
    r"(?:\?(?P<query>[A-Za-z0-9_.~%=&+-]*[A-Za-z0-9_~%=]))?"
)
_TYPED = re.compile(
    r"-o (?P<name>[a-z_]+)=(?P<value>'[^']*'|[\w./:-]*[\w/:-]|)(?: \((?:in a request )?\?[^)]*\))?"
)
_OPTION = re.compile(r"(?<![\w/])\?(?P<name>[a-z_]+)=(?P<value>[A-Za-z0-9_.:~%+-]*[A-Za-z0-9_%])")
_HOLE = re.compile(r"\{(\w+)\}")
_MAYBE = re.compile(r" \[([^\]]+)\]")


def _quote_value_for_shell(value: object) -> str:
    return shlex.quote(str(value))


class ApiOperationWithCommand(NamedTuple):
    """Kind of API request that advice can name, with its command and its button on a page.

    Attributes:
        method, path: the request, with names in braces for parts of the path below `/v1`.
        command: words after `perennial`, with names of the path, the query and the body in braces.
            Text in brackets is left out if it names a value that the request lacks; elsewhere such
            a name is in capitals.
        button: label of its button on a page; None: no page has one.
    """

    method: str
    path: str
    command: str
    button: str | None = None


# The first that fits a path is used, so the production alias precedes any alias.
OPERATIONS = (
    ApiOperationWithCommand(
        "PUT",
        "models/{model}/aliases/production",
        "promote {model} {version} [--reason {reason}]",
        "“Promote…”",
    ),
    ApiOperationWithCommand(
        "PUT",
        "models/{model}/aliases/{alias}",
        "promote {model} {version} --alias {alias} [--reason {reason}]",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/aliases/production/follow",
        "follow {model}",
        "“Let production follow”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/aliases/production/rollback",
        "rollback {model} [--to {version}] [--reason {reason}]",
        "“Roll back…”",
    ),
    ApiOperationWithCommand(
        "POST", "jobs/{job}/retry", "jobs retry {job} [--recipe {recipe}]", "“Learn it again…”"
    ),
    ApiOperationWithCommand(
        "POST", "jobs/{job}/choose", "jobs choose {job} {trial}", "“Choose a trial”"
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/tasks/{task}/relearn",
        "tasks relearn {model} {task} [--recipe {recipe}]",
        "“Learn task {task} again…”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/tasks/{task}/discard",
        "tasks discard {model} {task} [--reason {reason}]",
        "“Discard task {task}…”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/tasks/{task}/continue",
        "tasks continue {model} {task} [--reason {reason}]",
        "“Go on without task {task}…”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/tasks",
        "submit {model} BATCH [--recipe {recipe}]",
        "“Send a batch”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/edits",
        "classes merge {model} {names} --into {into}",
        "“Merge classes” on the page “Classes”",
    ),
    ApiOperationWithCommand("POST", "models/{model}/rebase", "models rebase {model} --base {base}"),
    ApiOperationWithCommand(
        "GET",
        "models/{model}/rebase",
        "models rebase {model} --status",
        "“Compare both image by image”",
    ),
    ApiOperationWithCommand(
        "POST",
        "models/{model}/rebase/finish",
        "models rebase {model} --finish",
        "“Move production…” or “Put it back…”",
    ),
    ApiOperationWithCommand("DELETE", "models/{model}", "models rm {model}", "“Delete the model…”"),
    ApiOperationWithCommand(
        "POST",
        "models",
        "models create {name} [--scenario {scenario}] [--architecture {architecture}] [--image "
        "{image}] [--base {base}] [--recipe {recipe}] [--description {description}]",
        "“New model”",
    ),
    ApiOperationWithCommand("GET", "models/{model}", "models show {model}", "its page"),
    ApiOperationWithCommand(
        "GET", "architectures", "bases architectures", "the form of a new model"
    ),
    ApiOperationWithCommand("GET", "methods", "methods", "the form of a new model"),
    ApiOperationWithCommand("GET", "bases", "bases list"),
    ApiOperationWithCommand(
        "POST",
        "bases",
        "bases upload FILE.safetensors --architecture {architecture} [--image-size {image_size}]"
        " [--channels {channels}]",
    ),
    ApiOperationWithCommand("POST", "keys", "keys create NAME", "“New key…”"),
    ApiOperationWithCommand("PATCH", "webhooks/{webhook}", "webhooks enable {webhook}", "“Enable”"),
    ApiOperationWithCommand("GET", "webhooks", "webhooks list", "the page of webhooks"),
    ApiOperationWithCommand("GET", "uploads", "uploads list"),
    ApiOperationWithCommand("POST", "uploads", "submit MODEL BATCH", "“Send a batch”"),
    ApiOperationWithCommand("DELETE", "uploads/{upload}", "uploads rm {upload}"),
    ApiOperationWithCommand(
        "PATCH", "uploads/{upload}", "submit MODEL BATCH", "“Send a batch”, with the same file"
    ),
)


@dataclass(frozen=True)
class ApiRequestForAdvice:
    """API request that advice tells a person to send.

    Attributes:
        method, path: such as POST and `/v1/jobs/job_1/retry`; names in the path are quoted.
        query: after the question mark, without it.
        body: JSON; a person replaces `…`.
        recipe: sent beside a batch, as the header `Perennial-Recipe`.
    """

    method: str
    path: str
    query: str = ""
    body: Mapping[str, Any] | None = None
    recipe: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        """Return `POST /v1/jobs/job_1/retry {"recipe": {…}}`."""
        text = f"{self.method} {self.path}{'?' if self.query else ''}{self.query}"
        if self.body is not None:
            text += f" {json.dumps(self.body, ensure_ascii=False)}"
        if self.recipe is not None:
            text += f" with {RECIPE}: {json.dumps(self.recipe, ensure_ascii=False)}"
        return text

    def format_as_command(
        self, word: Callable[[object], str] = _quote_value_for_shell, model: str | None = None
    ) -> str | None:
        """Format the request as a command such as `perennial jobs retry job_1`; None if no command
        sends it.

        Args:
            word: returns a value as one word of a shell.
            model: the model's name, in place of the id in the path.
        """
        match = self._find_request_operation()
        if match is None:
            return None
        operation, named = match
        body = _simplify_class_merge_body(self.body or {})
        values: dict[str, Any] = {**dict(parse_qsl(self.query)), **body, **named}
        if self.recipe is not None:
            values["recipe"] = self.recipe
        if model is not None and "model" in named:
            values["model"] = model
        # `enabled` is said by the name of the command.
        unknown = set(body) - set(_HOLE.findall(operation.command)) - {"enabled"}
        # the command would have nothing to copy
        is_empty = operation.path == "models" and not self.body
        # On the command line, a value that begins with @ would name a file.
        if unknown or is_empty or any(str(value).startswith("@") for value in values.values()):
            return None

        def fill_command_placeholder(hole: re.Match[str]) -> str:
            value = values.get(hole[1])
            if value is None or value == LEFT_OPEN:
                return WHY if hole[1] == "reason" else hole[1].upper()
            if hole[1] == "names" and isinstance(value, list):
                return " ".join(word(str(name)) for name in value)
            return word(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

        def drop_option_without_value(chunk: re.Match[str]) -> str:
            return (
                f" {chunk[1]}"
                if all(values.get(name) is not None for name in _HOLE.findall(chunk[1]))
                else ""
            )

        command = _MAYBE.sub(drop_option_without_value, operation.command)
        return f"perennial {_HOLE.sub(fill_command_placeholder, command)}"

    def get_button_label(self) -> str | None:
        """Return the label of the button or link on the pages that sends the request; None if no
        page has one.
        """
        match = self._find_request_operation()
        if match is None or match[0].button is None:
            return None
        return _HOLE.sub(lambda hole: match[1][hole[1]], match[0].button)

    def _find_request_operation(self) -> tuple[ApiOperationWithCommand, dict[str, str]] | None:
        for operation in OPERATIONS:
            pattern = _HOLE.sub(r"(?P<\1>[^/]+)", operation.path)
            match = re.fullmatch(f"/v1/{pattern}", self.path)
            if match and operation.method == self.method:
                return operation, {
                    name: unquote(value) for name, value in match.groupdict().items()
                }
        return None


def _simplify_class_merge_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request's body, simplified to `names` and `into` if it is an edit that only merges
    classes.
    """
    match body:
        case {"operations": [{"merge": {"from": [*names], "into": str(into)}}]} if len(body) == 1:
            return {"names": names, "into": into}
    return body


def replace_requests_in_sentence(
    text: str, render: Callable[[ApiRequestForAdvice], str | None]
) -> str:
    """Replace each API request in a sentence by another form, such as a command; others stay
    unchanged.
    """
    done, at = "", 0
    for start, end, step in find_requests_in_sentence(text):
        rendered = render(step)
        done += text[at:start] + (text[start:end] if rendered is None else rendered)
        at = end
    return done + text[at:]


def find_requests_in_sentence(text: str) -> Iterator[tuple[int, int, ApiRequestForAdvice]]:
    """Find API requests in a sentence; yield start, end and value of each."""
    at = 0
    while match := _REQUEST.search(text, at):
        at = match.end()
        body: dict[str, Any] = {}
        body_match = _BODY.match(text, at)
        if body_match is not None:
            try:
                # raw_decode, because the sentence goes on after the JSON.
                value, end = _JSON.raw_decode(text, body_match.end())
                body = {"recipe" if RECIPE in body_match["by"] else "body": value}
                at = end
            except ValueError:  # an ellipsis, or a name with a brace
                pass
        yield (
            match.start(),
            at,
            ApiRequestForAdvice(match["method"], match["path"], match["query"] or "", **body),
        )


def render_query_parameters_in_text(text: str, render: Callable[[str, str], str]) -> str:
    """Replace each query parameter in a text, such as `?layout=folders`, by `render(name, value)`."""
    return _OPTION.sub(lambda match: render(match["name"], unquote(match["value"])), text)


def replace_options_by_query_parameters(text: str) -> str:
    """Replace command-line options in a text by query parameters, such as `?layout=folders`.

    The rules of reading a batch, which the client shares, name both:
    `-o layout=folders (in a request …)`.
    """
    return _TYPED.sub(
        lambda match: f"?{match['name']}={quote(match['value'].strip(chr(39)), safe='/:')}", text
    )


def keep_cli_form_of_options(text: str) -> str:
    """Keep only the command-line forms of options in a text, and drop their query parameters."""
    return _TYPED.sub(lambda match: f"-o {match['name']}={match['value']}", text)
