"""The service keeps its own OpenAPI document: no 5xx, no undocumented status or body, whatever is sent."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import digits
from tools.client import Client

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemathesis_finds_no_5xx_and_no_undocumented_answer(running, client: Client, tmp_path):
    client.create_model("known", recipe={"method": "finetune", "epochs": 1})
    assert client.wait(client.submit("known", digits.archives()[0][1]))["state"] == "succeeded"
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
            "30",
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
    )
    print(done.stdout[-12000:])
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
