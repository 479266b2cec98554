"""Files and binary tensors as docs/http.md tells clients to send them, by curl and by fetch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.system.helpers import ROOT

PAGE = (ROOT / "docs/http.md").read_text()
DATA = bytes(range(256)) * 40
CONFIG = """
backend: "python"
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "BYTES" data_type: TYPE_INT32 dims: [ 2 ] } ]
"""
MEASURE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            (data,) = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            facts = np.array([len(data), sum(data)], np.int32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("BYTES", facts)]))
        return answers
"""


@pytest.fixture
def server(write_model, serve):
    write_model("NAME", MEASURE, CONFIG)
    return serve().ready()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_file_by_curl(server, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(DATA)
    (typed,) = re.findall(r"^(curl .*--data-binary(?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    typed = typed.replace("localhost:8000", f"127.0.0.1:{server.port}")
    done = subprocess.run(["bash", "-c", typed], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert done.stdout[-8:] == len(DATA).to_bytes(4, "little") + sum(DATA).to_bytes(4, "little")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_a_file_by_fetch(server):
    (code,) = re.findall(r"^```javascript\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    url = f"http://127.0.0.1:{server.port}/v2/models/NAME/infer"
    code += f"""
    const bytes = Uint8Array.from({{length: {len(DATA)}}}, (_, at) => at % 256);
    infer("{url}", new Blob([bytes])).then((answer) => console.log(JSON.stringify(answer)));
    """
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["outputs"][0]["data"] == [len(DATA), sum(DATA)], done
