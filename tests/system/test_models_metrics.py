"""Metrics that models keep, as a real client and a real scraper see them."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http

from tests.system.helpers import until

EXAMPLE = Path(__file__).parents[2] / "examples/custom_metrics"
LABELS = 'model="observed_sum",version="1"'
DONE = 'example_requests{model="observed_sum",outcome="done",version="1"}'
CALCULATOR = """
import gc, json
import numpy as np
import triton_python_backend_utils as pb_utils
F = pb_utils.MetricFamily
class TritonPythonModel:
    def initialize(self, args):
        self.kept = {}
        self.kept["start"] = F("c_start", "from initialize", F.COUNTER)
        self.kept["start one"] = self.kept["start"].Metric({"instance": args["model_instance_name"]})
    def execute(self, requests):
        out = []
        for request in requests:
            code = json.loads(request.parameters())["code"]
            try:
                exec(code, {"kept": self.kept, "F": F, "gc": gc, "pb_utils": pb_utils})
                error = None
            except Exception as raised:
                error = pb_utils.TritonError(f"{type(raised).__name__}: {raised}")
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros(1, np.float32))], error=error))
        return out
    def finalize(self):
        self.kept["start one"].increment(1)
"""


def scrape(server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    server.about = [line for line in lines if line.startswith("#")]
    values = [line.rsplit(" ", 1) for line in lines if not line.startswith(("#", "nv_", "tisfast_"))]
    return {name: float(value) for name, value in values}


@pytest.fixture
def served(serve):
    def start(repository=None):
        server = serve(repository=repository).ready()
        server.metrics_port = next(r["metrics_port"] for r in server.log if r.get("event") == "ready")
        return server

    return start


@pytest.fixture
def calculator(write_model, served):
    """A server on a model that runs what it is told; `run(code)` gives the error text, "" for none."""
    write_model("calc", CALCULATOR)
    server = served()

    def run(code: str) -> str:
        tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}
        body = {"inputs": [tensor], "parameters": {"code": code}}
        return server.ask("POST", "/v2/models/calc/infer", body)[1].get("error", "")

    server.run = run
    return server


def test_the_example_is_on_the_metrics_port_right_after_each_request(served):
    server = served(EXAMPLE)

    def ask(size: int) -> float:
        given = tritonclient.http.InferInput("IN", [1, size], "FP32")
        given.set_data_from_numpy(np.ones((1, size), np.float32))
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            return client.infer("observed_sum", [given]).as_numpy("OUT")[0, 0]

    assert scrape(server)[DONE] == 0
    for count in range(1, 6):
        assert ask(count * 3) == count * 3
        found = scrape(server)
        assert found[f"example_last_sum{{{LABELS}}}"] == count * 3
        assert found[DONE] == count
    assert found[f'example_elements_bucket{{le="10",{LABELS}}}'] == 3
    assert found[f"example_elements_sum{{{LABELS}}}"] == 45
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, [2] * 200)) == [2] * 200
    found = scrape(server)
    assert found[DONE] == 205
    assert (
        found[f'example_elements_bucket{{le="+Inf",{LABELS}}}'] == found[f"example_elements_count{{{LABELS}}}"] == 205
    )
    assert "# TYPE example_requests counter" in server.about
    assert "# HELP example_elements Numbers in a request" in server.about


def test_a_family_lives_as_long_as_its_object(calculator):
    server = calculator
    assert (
        server.run("kept['f'] = F('c_one', 'd', F.COUNTER); kept['m'] = kept['f'].Metric(); kept['m'].increment(2)")
        == ""
    )
    assert scrape(server)["c_one"] == 2
    assert server.run("del kept['f']; gc.collect()") == ""
    until(lambda: "c_one" not in scrape(server), "the family goes")  # a finaliser waits for nobody, so the drop follows
    gone = "Failed to increment metric value: Invalid metric operation as the corresponding 'MetricFamily'"
    assert gone in server.run("kept['m'].increment(1)")
    assert (
        server.run(
            "kept['f'] = F('c_one', 'd', F.GAUGE); kept['m'] = kept['f'].Metric(); assert kept['m'].value() == 0"
        )
        == ""
    )
    assert scrape(server)["c_one"] == 0


def test_refusals_name_instance_and_reason(calculator):
    server = calculator
    said = server.run("F('c_start', 'd', F.GAUGE)")
    assert said.endswith(
        "Error when creating MetricFamily: Failed to process the request for model 'calc_0', message: Family name "
        "already exists with different type"
    )
    assert "is a name of the server's own metrics" in server.run("F('nv_inference_count', 'd', F.COUNTER)")
    assert "Bucket Boundaries must be strictly sorted" in server.run("F('h', 'd', F.HISTOGRAM).Metric(buckets=[2, 1])")
    grow = "f = F('c_many', 'd', F.COUNTER)\nfor i in range(9000): f.Metric({'i': str(i)})"
    assert "an instance may have 8192 numbers in its metrics" in server.run(grow)
    until(lambda: len(scrape(server)) < 100, "the family of the last request is forgotten")


def test_metrics_of_a_killed_worker_go_with_it(calculator):
    server = calculator
    assert (
        server.run("kept['f'] = F('c_mortal', 'd', F.COUNTER); kept['m'] = kept['f'].Metric(); kept['m'].increment(9)")
        == ""
    )
    assert scrape(server)["c_mortal"] == 9
    os.kill(server.worker("calc_0"), signal.SIGKILL)
    until(lambda: "c_mortal" not in scrape(server), "the dead worker's metrics go")
    until(lambda: scrape(server).get('c_start{instance="calc_0"}') == 0, "the next worker's begin")


def test_every_line_is_one_that_prometheus_reads(calculator):
    server = calculator
    assert (
        server.run(
            "kept['f'] = F('c_odd', 'two\\nlines', F.GAUGE)\n"
            "for i, v in enumerate((float('inf'), float('nan'), -1e-300, 1e300)):\n"
            "    m = kept['f'].Metric({'i': str(i), 'text': 'q\"uo\\\\te\\nnew é'}); m.set(v)"
        )
        == ""
    )
    found = scrape(server)
    values = [value for name, value in sorted(found.items()) if name.startswith("c_odd")]
    assert values[0] == float("inf") and values[2:] == [-1e-300, 1e300]
    assert all(re.fullmatch(r"# (HELP|TYPE) \S+ .*", line) for line in server.about)
