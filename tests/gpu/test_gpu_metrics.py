"""What a server with a GPU tells of it, and what a model is told."""

from __future__ import annotations

import urllib.request

import pytest

from tests.gpu.stand_in_driver import GPU_IS_LOST, NOT_SUPPORTED
from tests.system.helpers import ADD_ONE, CONFIG, until

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


UUIDS = [f"GPU-57a4d140-0000-0000-0000-0000000000{number:02x}" for number in range(2)]
GAUGES = {
    "nv_gpu_utilization": (0.25, "nvmlDeviceGetUtilizationRates"),
    "nv_gpu_memory_total_bytes": (1 << 30, "nvmlDeviceGetMemoryInfo"),
    "nv_gpu_memory_used_bytes": (0, "nvmlDeviceGetMemoryInfo"),
    "nv_gpu_power_usage": (100, "nvmlDeviceGetPowerUsage"),
    "nv_gpu_power_limit": (700, "nvmlDeviceGetEnforcedPowerLimit"),
    "nv_energy_consumption": (0, "nvmlDeviceGetTotalEnergyConsumption"),
}
"""What the stand-in tells, and by which call.  Energy counts from the server's start."""


@pytest.fixture
def scraped(stand_in, serve, write_model):
    """scraped(): (server, gauges()), which reads {family: {uuid: value}}, of families that are told of at all."""
    write_model("m")

    def start():
        server = serve("--metrics-interval-ms=20").ready()
        port = server.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"]

        def gauges():
            text = urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10).read().decode()
            found = {name: {} for name in GAUGES if f"# TYPE {name} " in text}
            for line in text.splitlines():
                name, _, rest = line.partition('{gpu_uuid="')
                if name in found:
                    uuid, _, value = rest.partition('"} ')
                    found[name][uuid] = float(value)
            return found

        return server, gauges

    return start


def test_all_gauges_are_those_of_the_library(scraped, stand_in):
    used = stand_in.allocated()
    _, gauges = scraped()
    expected = {name: dict.fromkeys(UUIDS, value) for name, (value, _) in GAUGES.items()}
    expected["nv_gpu_memory_used_bytes"][UUIDS[0]] = used
    found = gauges()
    found["nv_gpu_memory_used_bytes"][UUIDS[1]] = 0
    assert found == expected


@pytest.mark.parametrize("call", sorted({call for _, call in GAUGES.values()}))
def test_what_no_gpu_tells_is_left_out_and_nothing_is_logged_of_it(scraped, stand_in, call):
    stand_in.fail(call, NOT_SUPPORTED)
    server, gauges = scraped()
    assert sorted(gauges()) == sorted(name for name, (_, source) in GAUGES.items() if source != call)
    before = stand_in.counted()["faults_met"]
    until(lambda: stand_in.counted()["faults_met"] > before + 10, "it is read again and again")
    assert [record for record in server.log if record["level"] in ("warning", "error")] == []
    stand_in.fail(call, 0)
    until(lambda: sorted(gauges()) == sorted(GAUGES), "it is told again")


def test_a_gpu_that_falls_off_the_bus_is_told_of_no_more_and_the_server_goes_on(scraped, stand_in):
    server, gauges = scraped()
    assert list(gauges()["nv_gpu_utilization"]) == UUIDS
    stand_in.fail("nvmlDeviceGetUUID", GPU_IS_LOST)
    until(lambda: gauges() == {}, "no GPU is told of")
    assert server.infer("m", [1.0])[0] == 200
    stand_in.fail("nvmlDeviceGetUUID", 0)
    until(lambda: sorted(gauges()) == sorted(GAUGES), "they are back")
    assert [record for record in server.log if record["level"] in ("warning", "error")] == []


def test_a_server_lets_go_of_the_library_when_it_ends(scraped, stand_in):
    before = stand_in.counted()
    server, _ = scraped()
    assert server.end() == 0
    after = stand_in.counted()
    begun, ended = (after[name] - before[name] for name in ("managers_begun", "managers_ended"))
    assert begun == ended == 1
