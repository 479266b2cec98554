"""What a server with a GPU tells of it, and what a model is told."""

from __future__ import annotations

import urllib.request

from tests.system.helpers import ADD_ONE, CONFIG

NAMES = ("nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes", "nv_gpu_power_usage")


def test_gpu_gauges(cuda, serve, write_model):
    write_model("m")
    server = serve().ready()
    port = server.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"]
    text = urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10).read().decode()
    for name in NAMES:
        assert f'{name}{{gpu_uuid="GPU-' in text


def test_an_instance_on_a_gpu_is_told_which(cuda, serve, write_model):
    told = "args['model_instance_kind'], args['model_instance_device_id']"
    code = f"{ADD_ONE}\n    def initialize(self, args):\n        print({told})\n"
    write_model("m", code, CONFIG + "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]")
    server = serve().ready()
    server.says("GPU 0")
    assert server.infer("m", [1.0])[0] == 200
