"""The service keeps its own OpenAPI document: no 5xx, no undocumented status or body, whatever is sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rest import Rest
from tools import digits

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"

BYTES = """import schemathesis

schemathesis.serializer.alias(
    ["application/offset+octet-stream", "application/partial-upload"], "application/octet-stream"
)
"""
"""Media types of tus and of the IETF's draft: bytes, which schemathesis does not know."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_no_5xx_and_no_undocumented_answer(running, client: Rest, tmp_path):
    client.models.create("known", recipe={"method": "finetune", "epochs": 1}, architecture="small-cnn")
    assert client.wait(client.submit("known", digits.archives()[0][1])).state == "succeeded"
    (tmp_path / "media_types.py").write_text(BYTES)
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "st"),
            "run",
            f"{running.url}/openapi.json",
            "--header",
            f"Authorization: Bearer {running.key}",
            "--checks",
            CHECKS,
            "--max-examples",
            "8",
            "--seed",
            "1",
            "--phases",
            "examples,coverage,fuzzing",
            "--continue-on-failure",
            "--request-timeout",
            "30",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "media_types"},
    )
    print(done.stdout[-12000:])
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
