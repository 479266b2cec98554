"""What a server tells of itself: to a real Prometheus, into trace files, to an OpenTelemetry receiver, in its log."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.system.helpers import ADD_ONE, until
from tests.telemetry.otlp_helpers import Receiver, attributes

VERBOSE = ADD_ONE.replace(
    "        return a + 1\n", '        pb_utils.Logger.log_verbose(f"verbose {a[0]:g}")\n        return a + 1\n'
)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def scrape(server) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
        return answer.read().decode()


@pytest.fixture
def served(write_model, serve):
    """Start a server on one model; with the port of its metrics."""

    def start(*flags, code=ADD_ONE):
        write_model("m", code)
        server = serve(*flags).ready()
        server.metrics_port = next(r["metrics_port"] for r in server.log if r.get("event") == "ready")
        return server

    return start


# ---- metrics


class Prometheus:
    """Debian's, on a free port, looking at one target."""

    def __init__(self, target: int, folder: Path) -> None:
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: t, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
        )
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
             "--web.listen-address=127.0.0.1:0", "--log.level=info"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', line)
            if found:
                self._port = int(found.group(1))
                break
        else:
            raise AssertionError("prometheus did not start")
        self._rest = subprocess.Popen(["cat"], stdin=self._process.stderr, stdout=subprocess.DEVNULL)

    def ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=60).close()
        except urllib.error.HTTPError as error:
            error.close()
            return False
        return True

    def value(self, query: str) -> float | None:
        address = f"http://127.0.0.1:{self._port}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            result = json.loads(answer.read())["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._rest.wait(60)
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs the prometheus server of Debian's package")
def test_a_real_prometheus_sees_what_was_asked(served, tmp_path):
    server = served("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
    for _ in range(7):
        assert server.infer("m")[0] == 200
    assert server.ask("POST", "/v2/models/m/infer", {"inputs": []})[0] == 400
    prometheus = Prometheus(server.metrics_port, tmp_path)
    try:
        until(prometheus.ready, "ready")
        until(lambda: prometheus.value("nv_inference_request_success"), "a scrape")
        for query, expected in (
            ('nv_inference_request_success{model="m",version="1"}', 7),
            ("nv_inference_count", 7),
            ("nv_inference_exec_count", 7),
            ("sum(nv_inference_request_failure)", 0),
            ("nv_inference_pending_request_count", 0),
            ("nv_inference_request_summary_us_count", 7),
            ("nv_inference_first_response_histogram_ms_count", 7),
            ('tisfast_request_duration_seconds_bucket{le="+Inf"}', 7),
            ("up", 1),
        ):
            # A scrape that a busy machine made too late takes all values away until the next one.
            until(lambda query=query, expected=expected: prometheus.value(query) == expected, query)
        for query, most in (
            ('nv_inference_compute_infer_summary_us{quantile="0.9"}', 60e6),
            ("histogram_quantile(0.9, tisfast_request_duration_seconds_bucket)", 60),
            ("nv_model_load_duration_secs", 60),
        ):
            until(lambda query=query: prometheus.value(query) is not None, query)
            until(lambda query=query, most=most: 0 < (prometheus.value(query) or 0) < most, query)
        assert server.infer("m")[0] == 200
        until(lambda: prometheus.value("nv_inference_count") == 8, "the next scrape")
    finally:
        prometheus.close()


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool of Debian's prometheus package")
def test_promtool_finds_nothing_but_tritons_names(served):
    server = served("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
    command = ["promtool", "check", "metrics"]
    found = subprocess.run(command, input=scrape(server), capture_output=True, text=True, check=False)
    assert "error while linting" not in found.stderr
    assert [line for line in (found.stdout + found.stderr).splitlines() if not line.startswith("nv_")] == []


# ---- traces


def trace_ids(path: Path) -> list[int]:
    return [each["id"] for each in json.loads(path.read_text()) if "model_name" in each]


def test_trace_files(served, tmp_path):
    file = tmp_path / "trace.json"
    server = served(
        f"--trace-config=triton,file={file}", "--trace-config=triton,log-frequency=2",
        "--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS",
        "--trace-config=rate=2", "--trace-config=count=3",
    )  # fmt: skip
    for number in range(10):
        assert server.infer("m", [float(number), 0.5])[0] == 200
    assert server.ask("GET", "/v2/models/m/trace/setting")[1]["trace_count"] == "0"
    assert server.end() == 0
    assert trace_ids(Path(f"{file}.0")) == [1, 2]
    assert trace_ids(Path(f"{file}.1")) == [3]
    first = [each for each in json.loads(Path(f"{file}.0").read_text()) if each["id"] == 1]
    times = {each["timestamps"][0]["name"]: each["timestamps"][0]["ns"] for each in first if "timestamps" in each}
    assert list(times) == [
        "HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "REQUEST_END", "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]  # fmt: skip
    assert list(times.values()) == sorted(times.values())
    tensors = [(each["activity"], each["tensor"]) for each in first if "tensor" in each]
    assert tensors == [
        ("TENSOR_QUEUE_INPUT", {"name": "A", "data": "1,0.5", "shape": "2", "dtype": "FP32"}),
        ("TENSOR_BACKEND_OUTPUT", {"name": "B", "data": "2,1.5", "shape": "2", "dtype": "FP32"}),
    ]


def test_tracing_switched_on_and_off_while_serving(served, tmp_path):
    file = tmp_path / "trace.json"
    server = served(f"--trace-config=triton,file={file}", "--trace-config=rate=1")
    server.infer("m")
    server.ask("POST", "/v2/models/m/trace/setting", {"trace_level": ["TIMESTAMPS"]})
    server.infer("m")
    until(lambda: file.exists() and trace_ids(file) == [1], "the trace of the second request")
    server.ask("POST", "/v2/models/m/trace/setting", {"trace_level": None})
    server.infer("m")
    assert server.end() == 0
    assert trace_ids(file) == [1]


def test_spans_continue_the_callers_trace(served):
    receiver = Receiver()
    try:
        server = served(
            "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={receiver.url}",
            "--trace-config=opentelemetry,resource=service.name=mine", "--trace-config=level=TIMESTAMPS",
            "--trace-config=rate=0", "--trace-config=opentelemetry,bsp_schedule_delay=50",
        )  # fmt: skip
        assert server.infer("m")[0] == 200  # nobody asked for a trace of this one
        body = json.dumps({"id": "7", "inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]})
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v2/models/m/infer",
            body.encode(),
            {"TraceParent": PARENT, "tracestate": "a=b"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
        compute, model, root = receiver.spans(3)
        assert server.end() == 0
    finally:
        receiver.close()
    assert [span.name for span in (root, model, compute)] == ["InferRequest", "m", "compute"]
    assert {span.trace_id.hex() for span in (root, model, compute)} == {PARENT.split("-")[1]}
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    assert attributes(model)["triton.request_id"] == "7"
    assert len(receiver.spans(3)) == 3


def test_deprecated_flags_say_so(served, tmp_path):
    server = served(f"--trace-file={tmp_path / 't'}", "--trace-level=TIMESTAMPS", "--trace-rate=5")
    server.says("--trace-file is deprecated; use --trace-config triton,file=<filepath> instead")
    assert server.ask("GET", "/v2/trace/setting")[1]["trace_rate"] == "5"


# ---- log


def test_the_verbose_level_reaches_models_and_those_that_come_after(served):
    server = served(code=VERBOSE)
    server.infer("m", [1.0])
    assert server.ask("POST", "/v2/logging", {"log_verbose_level": 1})[1]["log_verbose_level"] == 1
    until(lambda: server.infer("m", [2.0]) and any("verbose 2" in r["message"] for r in server.log), "verbose")
    here = len(server.log)
    subprocess.run([sys.executable, "-c", f"import os; os.kill({server.worker('m_0')}, 9)"], check=True)
    server.says("m_0 is ready", here)
    until(lambda: server.model_ready("m"), "ready")
    server.infer("m", [3.0])
    server.says("verbose 3")
    assert not any("verbose 1" in record["message"] for record in server.log)
