"""Display of answers in a notebook."""

import base64
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
import sample_answers
import small_batches
from nbclient import NotebookClient
from PIL import Image
from playwright.sync_api import Browser

from perennial import Comparison, Perennial, types
from perennial.notebook import render_transfer_bar
from perennial.shapes import convert_from_json
from tools import service

PAYLOADS = (
    "<img src=x onerror=alert(1)>",
    "'\" onmouseover=alert(1) x='",
    "</td><script>alert(1)</script>",
    "&lt;b&gt;",
)
TAGS = {"b", "br", "code", "div", "img", "li", "span", "table", "td", "th", "tr", "ul"}
ATTRIBUTES = {"alt", "src", "style", "title"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SHOWN: dict[str, tuple[str, Any]] = {
    "model": ("/v1/models/birds", types.Model),
    "version": ("/v1/models/birds/versions/1", types.Version),
    "job": ("/v1/jobs/job_1", types.Job),
    "comparison": ("/v1/models/birds/compare", types.Compare),
    "matrix": ("/v1/models/birds/metrics", types.Metrics),
}
CELLS = (
    "from perennial import Perennial\nclient = Perennial()\n"
    "job = client.submit('shown', 'week-33.zip', name=HOSTILE, progress=True)",
    "_ = job.wait(progress=True)",
    "job",
    "client.models.retrieve('shown')",
    "client.versions.retrieve('shown', 3)",
    "client.versions.compare_with_pictures('shown', 1, 3, most=6)",
    "metrics = client.metrics.retrieve('shown')\nmetrics",
    "metrics.to_pandas()",
    "client.versions.list('shown').to_pandas()[['number', 'status', 'mean_accuracy']]",
)


class Seen(HTMLParser):
    """Parser that collects tags, attributes and text of HTML."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.sources: list[str] = []
        self.text = ""
        self.open = 0
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources += [value or "" for name, value in attrs if name == "src"]
        self.open += tag not in ("br", "img")

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def make_hostile(value: Any, payload: str) -> Any:
    """Return the same JSON with each text replaced."""
    if isinstance(value, dict):
        return {
            payload if key == "production" else key: make_hostile(one, payload)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [make_hostile(one, payload) for one in value]
    return payload if isinstance(value, str) else value


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("shown", SHOWN)
def test_what_somebody_named_is_text_in_a_notebook(shown: str, payload: str) -> None:
    target, kind = SHOWN[shown]
    answer = convert_from_json(
        kind, make_hostile(sample_answers.find_sample_answer("GET", target), payload)
    )
    content = answer._repr_html_()
    assert content is not None
    seen = Seen(content)
    assert seen.tags <= TAGS and seen.attributes <= ATTRIBUTES and not seen.sources
    assert seen.open == 0
    if shown != "matrix":
        assert payload in seen.text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_comparison_has_pictures_as_data_and_names_as_text(payload: str) -> None:
    compare = convert_from_json(
        types.Compare, sample_answers.find_sample_answer("GET", "/v1/models/birds/compare")
    )
    page = sample_answers.find_sample_answer("GET", "/v1/models/birds/compare/images")
    image = convert_from_json(types.ComparedImage, make_hostile(page["items"][0], payload))
    seen = Seen(Comparison(compare, [image, image], [PNG, PNG])._repr_html_())
    assert seen.tags <= TAGS and seen.attributes <= ATTRIBUTES and seen.open == 0
    assert seen.sources == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"] * 2
    assert payload in seen.text


def test_a_comparison_takes_no_picture_that_is_none() -> None:
    compare = convert_from_json(
        types.Compare, sample_answers.find_sample_answer("GET", "/v1/models/birds/compare")
    )
    page = sample_answers.find_sample_answer("GET", "/v1/models/birds/compare/images")
    image = convert_from_json(types.ComparedImage, page["items"][0])
    for pictures in ([b"<svg onload=alert(1)>"], []):
        with pytest.raises(ValueError, match="PNG"):
            Comparison(compare, [image], pictures)


@pytest.mark.parametrize(
    ("done", "total", "percent", "said"),
    [
        (0, 2_000_000, 0, "0.0 kB of 2.0 MB"),
        (500_000, 2_000_000, 25, "0.5 MB of 2.0 MB"),
        (500, None, 0, "0.5 kB"),
    ],
)
def test_a_bar_says_how_much_is_there(
    done: int, total: int | None, percent: int, said: str
) -> None:
    content = render_transfer_bar(PAYLOADS[0], done, total)
    assert f"width:{percent}%" in content and said in content and Seen(content).tags == {"div"}


def test_an_answer_without_bounds_is_shown_within_some() -> None:
    model = sample_answers.find_sample_answer("GET", "/v1/models/birds")
    waits = [{**model["attention"][0], "detail": "<" * 100_000}] * 1000
    content = convert_from_json(
        types.Model, {**model, "description": "&" * 10_000_000, "attention": waits}
    )._repr_html_()
    assert content is not None and len(content) < 1_000_000
    assert Seen(content).open == 0


def test_other_answers_are_shown_as_their_text() -> None:
    memory = sample_answers.find_sample_answer("GET", "/v1/models/birds/memory")
    assert convert_from_json(types.Memory, memory)._repr_html_() is None


class Watched(NotebookClient):  # type: ignore[misc]  # it has no types
    """A notebook that is run; it counts how often displayed output is redrawn."""

    redrawn = 0

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        self.redrawn += msg["msg_type"] == "update_display_data"
        return super().process_message(msg, cell, cell_index)


@pytest.mark.slow
def test_a_notebook_shows_what_it_asks_for(
    running: service.RunningService,
    client: Perennial,
    archives: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    browser: Browser,
) -> None:
    client.models.create(
        "shown", **{**small_batches.SMALL, "recipe": {**small_batches.QUICK, "epochs": 5}}
    )
    for archive in archives[:2]:
        client.submit("shown", archive).wait(240)
    (tmp_path / "week-33.zip").write_bytes(archives[2])
    settings = {
        "PERENNIAL_URL": running.url,
        "PERENNIAL_API_KEY": running.key,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[2] / "client"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    cells = [
        nbformat.v4.new_code_cell(cell.replace("HOSTILE", repr(PAYLOADS[0]))) for cell in CELLS
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    runner = Watched(
        notebook,
        timeout=280,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    runner.execute()

    outputs = [
        [one["data"]["text/html"] for one in cell.outputs if "data" in one]
        for cell in notebook.cells
    ]
    assert [len(one) for one in outputs] == [1] * len(CELLS)
    sent, waited, job, model, version, comparison, matrix, frame, versions = (
        one[0] for one in outputs
    )
    assert runner.redrawn >= 1 and "width:100%" in sent
    assert "succeeded" in waited and "width:100%" in waited and "succeeded" in job
    assert "Model shown" in Seen(model).text and "Version 3" in Seen(version).text
    assert (
        Seen(matrix).text.count("version") == 5
        and "<table" in frame
        and "mean_accuracy" in versions
    )

    flipped = client.versions.compare_images("shown", 1, 3, limit=6).data
    assert flipped, "fine-tuning forgets"
    pictures = [base64.b64decode(one.partition("base64,")[2]) for one in Seen(comparison).sources]
    assert pictures == [client.tasks.image("shown", one.task, one.index) for one in flipped]
    assert {Image.open(io.BytesIO(one)).size for one in pictures} == {(8, 8)}

    body = "".join(f"<section>{one[0]}</section>" for one in outputs)
    page = browser.new_page(viewport={"width": 900, "height": 700})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_content(f"<!doctype html><style>section {{ margin: 1em }}</style><body>{body}")
    sizes = page.evaluate("[...document.images].map(one => [one.naturalWidth, one.clientWidth])")
    assert len(sizes) == len(flipped) and all(
        natural == 8 and shown > 50 for natural, shown in sizes
    )
    assert all(re.match(r"data:|about:", url) for url in asked)
    page.screenshot(path=str(tmp_path / "notebook.png"), full_page=True)
    page.close()
