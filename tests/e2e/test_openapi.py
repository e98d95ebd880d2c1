"""The service keeps its own OpenAPI document: no 5xx, no undocumented status or body, whatever is
sent.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.predict.images import FILES
from tests.e2e import small
from tests.rest import Rest
from tools import service

pytestmark = pytest.mark.slow

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
BYTES = f"""import schemathesis

schemathesis.serializer.alias(
    {["application/offset+octet-stream", "application/partial-upload", *FILES]}, "application/octet-stream"
)
"""
"""Media types of tus, of the IETF's draft and of images: bytes, which schemathesis does not know.
"""


@pytest.mark.parametrize(
    ("phases", "examples"),
    [
        pytest.param("fuzzing", 1, id="drawn"),
        pytest.param("fuzzing", 8, marks=pytest.mark.campaign, id="drawn-more"),
        pytest.param("examples,coverage", 1, marks=pytest.mark.campaign, id="listed"),
    ],
)
def test_schemathesis_finds_no_5xx_and_no_undocumented_answer(
    running: service.RunningService, admin: Rest, tmp_path: Path, phases: str, examples: int
) -> None:
    small.create_small_model(admin, f"known-{phases[:4]}-{examples}", "finetune")
    small.learn_batches(admin, f"known-{phases[:4]}-{examples}", small.WEEKS[0])
    (tmp_path / "media_types.py").write_text(BYTES)
    command = [
        str(Path(sys.executable).parent / "st"),
        *("run", f"{running.url}/openapi.json", "--header", f"Authorization: Bearer {running.key}"),
        *("--checks", CHECKS, "--phases", phases, "--max-examples", str(examples), "--seed", "1"),
        *("--continue-on-failure", "--request-timeout", "60"),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "media_types"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
