"""model_warmup with a real server: what clients and whoever reads the log see of it."""

from __future__ import annotations

import os
import signal

from tests.system.helpers import ADD_ONE, CONFIG, until

SAMPLE = """
model_warmup [ {
  name: "ones" batch_size: 1 count: 2
  inputs { key: "A" value: { data_type: TYPE_FP32 dims: [ 3 ] zero_data: true } }
} ]
"""
ZERO_AT_FIRST = (
    ADD_ONE
    + """
    def initialize(self, args):
        self.first = True

    def compute(self, a):
        was_first, self.first = self.first, False
        return a + (not was_first)
"""
)


def test_the_first_request_of_a_client_is_not_the_model_s_first(serve, write_model):
    write_model("m", ZERO_AT_FIRST.replace("    def compute(self, a):\n        return a + 1\n", "", 1), CONFIG + SAMPLE)
    server = serve().ready()
    line = server.says("warm-up sample 'ones' executed 2 time(s)")
    assert line["model"] == "m" and line["instance"] == "m_0"
    assert server.infer("m", [1.0])[1]["outputs"][0]["data"] == [2.0]
    [stats] = server.ask("GET", "/v2/models/m/stats")[1]["model_stats"]
    assert stats["inference_stats"]["success"]["count"] == 3  # the two are counted, as Triton's are


def test_a_killed_worker_is_warmed_up_again(serve, write_model):
    write_model("m", ADD_ONE, CONFIG + SAMPLE)
    server = serve().ready()
    so_far = len(server.log)
    os.kill(server.worker("m_0"), signal.SIGKILL)
    server.says("warm-up sample 'ones' executed 2 time(s)", so_far)
    until(lambda: server.model_ready("m"), "it is back")
    assert server.infer("m")[0] == 200


def test_a_failed_sample_fails_the_load(serve, write_model):
    write_model("m", ADD_ONE.replace("return a + 1", "raise ValueError('no weights')"), CONFIG + SAMPLE)
    server = serve("--exit-on-error=false").ready()
    [entry] = server.ask("POST", "/v2/repository/index")[1]
    assert entry["state"] == "UNAVAILABLE"
    assert entry["reason"].startswith("Invalid argument: failed to run warmup sample 'ones': ")
    assert "ValueError: no weights" in entry["reason"]
