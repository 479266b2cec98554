"""Public clients against the real server, each in an environment of its own: `make test-clients`.

Each waits for a model that is not loaded yet, reads metadata, infers, and is told what is wrong with a wrong request.
"""

from __future__ import annotations

import pytest

from tests.clients.conftest import load
from tests.system.conftest import ROOT

PROTOS = ROOT / "tisfast/wire/proto"
CASES = [
    *((kind, "tritonclient_calls.py", way) for kind in ("tritonclient", "tritonclient_2_51") for way in ("http", "grpc")),
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
