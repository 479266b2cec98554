"""The OpenAPI document of a real server: its examples work, and schemathesis finds nothing that it does not say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples/models"
SECONDS_MAX = 120
CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"


def test_the_examples_of_every_model_are_answered(serve):
    server = serve(repository=EXAMPLES).ready()
    url = f"http://127.0.0.1:{server.port}"
    names = [entry["name"] for entry in httpx.post(f"{url}/v2/repository/index").json()]
    tried = 0
    for name in names:
        document = httpx.get(f"{url}/v2/models/{name}/docs").json()
        for path, methods in document["paths"].items():
            for content in [
                m["requestBody"]["content"]["application/json"] for m in methods.values() if "requestBody" in m
            ]:
                assert httpx.post(url + path.replace("{version}", "1"), json=content["example"]).status_code == 200, (
                    path
                )
                tried += 1
    assert tried >= 6 * len(names) > 0


def test_schemathesis_finds_no_answer_that_the_document_does_not_have(serve):
    server = serve(repository=EXAMPLES).ready()
    url = f"http://127.0.0.1:{server.port}"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/v2/docs", "--url", url, "--checks", CHECKS]
    command += ["--max-examples", "8", "--seed", "1", "--request-timeout", "10", "--no-color"]
    command += ["--phases", "examples,coverage,fuzzing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert httpx.get(f"{url}/v2/health/ready").status_code == 200
