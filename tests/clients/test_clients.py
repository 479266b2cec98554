"""Public clients against the real server, each in an environment of its own: `make test-clients`.

Each waits for a model that is not loaded yet, reads metadata, infers, and is told what is wrong with a wrong request.
"""

from __future__ import annotations

import json

import pytest

from tests.clients.conftest import load
from tests.system.helpers import ROOT

PROTOS = ROOT / "tisfast/wire/proto"
CASES = [
    *(
        (kind, "tritonclient_calls.py", way)
        for kind in ("tritonclient", "tritonclient_2_51")
        for way in ("http", "grpc")
    ),
    *((kind, "tritonclient_aio.py", way) for kind in ("tritonclient", "tritonclient_2_51") for way in ("http", "grpc")),
    *(("pytriton", "pytriton_clients.py", way) for way in ("http", "grpc")),
    ("kserve", "kserve_rest.py", ""),
    ("kserve", "kserve_grpc.py", ""),
    *(("tritony", "tritony_client.py", way) for way in ("http", "grpc")),
    ("open_inference", "open_inference_openapi.py", ""),
    ("open_inference", "open_inference_grpc.py", ""),
    ("model_analyzer", "model_analyzer_remote.py", ""),
]


@pytest.mark.parametrize(("name", "file", "way"), CASES, ids=lambda each: each.removesuffix(".py"))
def test_a_client_that_waits_for_its_model(server, addresses, run, name, file, way):
    client = run(name, file, *addresses, *([way] if way else []))
    client.says("waiting")
    load(server)
    client.ends_well()


def test_grpc_js(server, addresses, run):
    client = run("grpc_js", "grpc_js.js", addresses[1], str(PROTOS))
    client.says("waiting")
    load(server)
    client.ends_well()


def test_aiperf(server, addresses, run, tmp_path):
    """Its load on `generate`, and what it reads of the metrics."""
    run("aiperf", "aiperf_tokenizer.py", str(tmp_path / "tokenizer")).ends_well()
    load(server)
    texts, results = tmp_path / "texts.jsonl", tmp_path / "results"
    texts.write_text('{"text": "hello"}\n{"text": "world"}\n')
    run(
        *("aiperf", "aiperf", "profile", "--model", "upper", "--url", f"http://{addresses[0]}"),
        *("--endpoint", "/v2/models/upper/generate", "--endpoint-type", "template"),
        *("--extra-inputs", 'payload_template:{"TEXT": {{ text|tojson }}}', "--extra-inputs", "response_field:UPPER"),
        *("--input-file", str(texts), "--custom-dataset-type", "single-turn"),
        *("--tokenizer", str(tmp_path / "tokenizer")),
        *("--request-count", "20", "--concurrency", "2", "--ui", "none", "--artifact-dir", str(results)),
        *("--server-metrics", f"http://{addresses[2]}/metrics"),
    ).ends_well()
    found = json.loads((results / "profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == 20
    assert found["error_summary"] == []
    assert "nv_inference_request_success" in (results / "server_metrics_export.json").read_text()
    assert server.ask("GET", "/v2/models/upper/stats")[1]["model_stats"][0]["inference_count"] >= 20
