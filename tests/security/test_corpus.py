"""The corpus of hostile inputs: at the readers themselves, and, slow, all of it through HTTP."""

from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ImageInvalid, PerennialError
from core.files.safetensors_header import check_expected_tensors, read_safetensors_header
from core.ingest import images
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import SNIFF_BYTES, detect_upload_format
from tests.security import archives, arrays, corpus, pictures, weights
from tests.security.case import TASKS, Case
from tools.service import RunningService

EXPECTED = {"weight": {"dtype": "F32", "shape": [1]}}


COSTLY = {
    "labels.csv a million lines": [pytest.mark.campaign],
    "TIFF of 65,536 tiles that are one JPEG of 88 scans": [pytest.mark.campaign],
}
"""Cases of seconds."""


def make_named_params(cases: list[Case]) -> list[object]:
    return [pytest.param(one, id=one.name, marks=COSTLY.get(one.name, [])) for one in cases]


@pytest.mark.slow
def test_there_are_hundreds_of_cases_each_with_a_name_of_its_own() -> None:
    names = [(case.group, case.name) for case in corpus.list_cases()]
    assert len(set(names)) == len(names) >= 550


@pytest.mark.parametrize(
    "case",
    make_named_params(
        [c for c in [*archives.list_cases(), *arrays.list_cases()] if c.path == TASKS]
    ),
)
def test_a_hostile_archive_gets_its_answer(case: Case, tmp_path: Path) -> None:
    data = case.body()
    assert isinstance(data, bytes)
    path = tmp_path / "body"
    path.write_bytes(data)
    try:
        summarise_archive_and_digest_content(
            path,
            detect_upload_format(data[:SNIFF_BYTES], case.headers.get("Content-Type")),
            ArchiveLimits(),
        )
        status, code = 202, ""
    except PerennialError as error:
        status, code = error.status, error.code
        assert error.detail.isprintable() and len(error.detail) < 600
    assert case.right(status, code), (status, code)


@pytest.mark.parametrize(
    "case", make_named_params([c for c in weights.list_cases() if "said to be" not in c.name])
)
def test_hostile_weights_are_refused_in_few_words(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_bytes(case.body())  # type: ignore[arg-type]
    with pytest.raises(PerennialError) as caught:
        check_expected_tensors(read_safetensors_header(path), EXPECTED)
    assert caught.value.code == "base-invalid"
    assert caught.value.detail.isprintable() and len(caught.value.detail) < 700
    assert sum(len(field["field"]) for field in caught.value.fields) < 10_000


@pytest.mark.parametrize("case", make_named_params(pictures.list_cases()))
def test_a_hostile_picture_is_decoded_or_refused_for_its_reason(case: Case) -> None:
    data = case.body()
    assert isinstance(data, bytes)
    if not case.row:
        assert images.decode_square_image(data, 32, 3, ArchiveLimits().image_pixels)[0].size == (
            32,
            32,
        )
        return
    with pytest.raises(ImageInvalid) as caught:
        images.decode_square_image(data, 32, 3, ArchiveLimits().image_pixels)
    assert case.row == "*" or any(words in caught.value.detail for words in case.row.split("|"))


@pytest.mark.parametrize(
    ("chosen", "least"),
    [
        pytest.param(corpus.list_representative_cases, 300, marks=pytest.mark.slow),
        pytest.param(corpus.list_cases, 600, marks=pytest.mark.campaign),
    ],
)
def test_every_case_gets_its_answer_over_http_and_the_service_is_as_it_was(
    chosen: Callable[[], list[Case]], least: int, running: RunningService
) -> None:
    every_job = chosen is corpus.list_cases
    report = corpus.attack_service(running, chosen(), every_job=every_job)
    assert report.wrong == []
    assert len(report.outcomes) > least
    assert set(report.peaks) >= {"api", "worker", "decoder", "helper", "image decoder"}
