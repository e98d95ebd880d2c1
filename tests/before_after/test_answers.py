"""Replacement of values that differ between runs; all other values stay."""

import io
import json
import zipfile

import httpx2

from tests.before_after.answers import Normaliser

FIRST, SECOND = "job_01m82hqspkngbxpp7c3c7ck07p", "job_01m82hx38y8t5q9yv16dgm3aac"


def test_an_id_is_told_by_its_first_appearance_wherever_it_stands() -> None:
    of_run = Normaliser()
    body = {
        "id": SECOND,
        "items": [{"job": FIRST}],
        "detail": f"see /v1/jobs/{SECOND}; job\\{FIRST[3:]}",
    }
    assert of_run.value(body) == {
        "id": "job#1",
        "items": [{"job": "job#2"}],
        "detail": "see /v1/jobs/job#1; job#2",
    }


def test_times_dates_secrets_speeds_and_numbered_ids_are_replaced_and_other_values_stay() -> None:
    body = {
        "created_at": "2026-11-22T21:06:57.123Z",
        "detail": "went on 2026-11-22 at 2,100 images/s after 3.1 s",
        "secret": "pk_abc-DEF",
        "id": 17,
        "seconds": [0.5, None],
        "images_per_s": 12.5,
        "eta_s": None,
        "value": 17,
        "share": 0.5,
    }
    assert Normaliser().value(body) == {
        "created_at": "<time>",
        "detail": "went on <date> at <speed> after <duration>",
        "secret": "<secret>",
        "id": "<id>",
        "seconds": ["<seconds>", None],
        "images_per_s": "<images_per_s>",
        "eta_s": None,
        "value": 17,
        "share": 0.5,
    }


def test_parts_with_training_images_are_left_out_of_lists_of_parts() -> None:
    parts = [
        {"name": "head", "type": "head", "sha256": "ab"},
        {"name": "b", "type": "buffer", "sha256": "cd"},
    ]
    assert Normaliser().value({"parts": parts}) == {"parts": parts[:1]}
    shown = [
        {"type": "buffer", "items": 30, "per_class": {"0": 30}}
    ]  # what GET …/memory says of them
    assert Normaliser().value({"parts": shown}) == {"parts": shown}


def test_of_a_job_that_is_not_over_the_step_is_left_out() -> None:
    def build_job(over: bool) -> dict[str, object]:
        return {
            "is_terminal": over,
            "progress": {"phase": "train", "epoch": 3, "step": 9, "total_steps": 12},
        }

    assert Normaliser().value(build_job(True)) == build_job(True)
    assert Normaliser().value(build_job(False))["progress"] == {
        "phase": "train",
        "epoch": "<epoch>",
        "step": "<step>",
        "total_steps": 12,
    }


def test_of_a_download_weights_are_told_by_digest_and_the_code_version_is_replaced() -> None:
    def normalise_download(weights: bytes, code: str) -> object:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("model.safetensors", weights)
            archive.writestr("config.json", json.dumps({"code_version": code * 64, "seed": 0}))
            archive.writestr("README.md", f"# Card\n\n| code version | {code * 64} |\n")
        headers = {"Content-Type": "application/zip", "ETag": f'"{code}"', "Date": "today"}
        return Normaliser().answer(
            httpx2.Response(200, content=content.getvalue(), headers=headers)
        )

    assert normalise_download(b"weights", "a") == normalise_download(b"weights", "b")
    assert normalise_download(b"weights", "a") != normalise_download(b"others", "a")
