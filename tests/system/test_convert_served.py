"""`tisfast convert` as a user runs it: what it writes is served by `tisfast serve`, and answers as the source does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")
pytest.importorskip("openvino", reason="OpenVINO has no wheel for this interpreter")

from tests.convert.made_models import network, too_large_for_fp16  # noqa: E402
from tests.system.helpers import ROOT, until  # noqa: E402

X = np.random.default_rng(7).standard_normal((5, 8), np.float32)
SHORT = ("--seconds", "0.1", "--concurrency", "1,2", "--target", "onnx,openvino")


@pytest.fixture
def convert(tmp_path):
    """Run the command in a folder of its own: its exit code, output and errors."""
    np.savez(tmp_path / "real.npz", x=X)

    def run(*arguments: object):
        command = [sys.executable, "-m", "tisfast", "convert", *map(str, arguments), *SHORT]
        ran = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return ran.returncode, ran.stdout, ran.stderr

    return run


def answers(source, x):
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


def asked(module, client, name, x):
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return client.infer(name, [given]).as_numpy("y")


@pytest.mark.parametrize(("source", "formats"), [(network, 4), (too_large_for_fp16, 3)])
def test_what_is_written_is_served_with_the_answers_of_the_source(tmp_path, convert, serve, connect, source, formats):
    """In all formats, and where FP16 makes one of them wrong."""
    path = source(tmp_path)
    code, said, told = convert(path.name, "--samples", "real.npz", "-o", "converted")
    assert code == 0 and f"Written: converted/{path.stem}; serve it with: tisfast serve" in said, said + told
    report = json.loads((tmp_path / "converted" / "report.json").read_text())
    assert [each["status"] for each in report["tries"]].count("ok") == formats
    assert report["best"] and f"Best: {report['best']}" in said
    server = serve("--http-port=0", repository=tmp_path / "converted").ready()
    expected = answers(path, X)
    for module in (httpclient, grpcclient):
        client = connect(server, module)
        for rows in (X, X[:1]):
            found = asked(module, client, path.stem, rows)
            assert np.allclose(found, expected[: len(rows)], rtol=1e-2, atol=1e-2), report["best"]


def test_what_was_served_may_be_converted_again_and_what_was_edited_not(tmp_path, convert, serve, connect):
    """While the server polls the folder: it never sees half of it."""
    path = network(tmp_path)
    arguments = (path, "--samples", "real.npz", "-o", "models", "--precision", "fp32")
    assert convert(*arguments)[0] == 0
    server = serve("--model-control-mode=poll", "--repository-poll-secs=1").ready()
    client = connect(server, httpclient)
    first = asked(httpclient, client, "net", X)
    code, said, told = convert(*arguments, "--max-batch-size", "4")
    assert code == 0, said + told
    until(lambda: client.get_model_config("net")["max_batch_size"] == 4, "the new folder is served")
    assert np.allclose(asked(httpclient, client, "net", X[:4]), first[:4], rtol=1e-3, atol=1e-4)
    config = tmp_path / "models" / "net" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 4", "max_batch_size: 3"))
    code, _, told = convert(*arguments)
    assert code == 1 and "config.pbtxt was changed since tisfast convert wrote it" in told
    assert "max_batch_size: 3" in config.read_text()
