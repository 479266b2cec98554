"""Memory that runs out and memory that is shared out, seen from outside a real server."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from tests.system.helpers import ADD_ONE, CONFIG, in_background, in_compute, until

MB = 1 << 20


def with_ballast(megabytes: int) -> str:
    """A model that holds so much memory."""
    setup = f"""
    def initialize(self, args):
        self.ballast = bytes(1) * ({megabytes} << 20)
        import os
        print("process", os.getpid())
"""
    return ADD_ONE.replace("class TritonPythonModel:\n", f"class TritonPythonModel:\n{setup}")


def limited(code: str, gigabytes: float = 1) -> str:
    """The model in a process that may not map more than so much beyond what it has: arenas are address space."""
    return f"""
import resource
with open("/proc/self/statm") as statm:
    mapped = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + int({gigabytes} * 2**30),) * 2)
{code}"""


def index(server) -> dict[str, dict]:
    return {entry["name"]: entry for entry in server.ask("POST", "/v2/repository/index")[1]}


def metric(server, name: str, model: str) -> float:
    port = server.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf'^{name}{{model="{model}",version="1"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else -1.0


# ---- loads


def test_a_load_that_runs_out_of_memory_is_told_and_leaves_nothing(serve, write_model):
    write_model("big", limited("import numpy as np\nweights = np.ones(1 << 33, np.uint8)\n" + ADD_ONE))
    write_model("small")
    server = serve("--exit-on-error=false").ready()
    assert server.infer("small", [1.0])[1]["outputs"][0]["data"] == [2.0]
    reason = index(server)["big"]["reason"]
    assert "Unable to allocate 8.00 GiB" in reason
    assert "instance big_0 of model 'big' ran out of memory (8.0 GiB were asked for) when it loaded" in reason
    assert "lower the 'count'" in reason and "is free again" in reason
    names = server.of_family(psutil.Process.name)
    assert "big_0" not in names and "small_0" in names
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "tisfast-in-big" not in maps and "tisfast-out-big" not in maps
    assert server.end() == 0


def test_a_load_that_dies_in_cpp_without_memory_is_told(serve, write_model):
    code = 'import os, sys\nprint("what():  std::bad_alloc", file=sys.stderr, flush=True)\nos.abort()\n'
    write_model("m", code + ADD_ONE)
    server = serve("--exit-on-error=false").ready()
    reason = index(server)["m"]["reason"]
    assert "was killed by signal 6 (SIGABRT), for want of memory (std::bad_alloc)" in reason, reason


@pytest.fixture
def narrow():
    """A memory cgroup of 200 MB, which processes enter through `cgroup.procs`: the kernel kills there."""
    root = Path("/sys/fs/cgroup")
    first = not (root / "cgroup.controllers").exists()
    place = (root / "memory" if first else root) / f"tisfast-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if first else "memory.max"
    try:
        place.mkdir()
        (place / limit).write_text(str(200 * MB))
    except OSError as error:
        if place.exists():
            place.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield place
    until(lambda: not (place / "cgroup.procs").read_text(), "nobody is left in the cgroup")
    place.rmdir()


def entering(place: Path, indent: str = "") -> str:
    """Code that takes more than there is."""
    lines = [f"import os; open({str(place / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))", "b'1' * (1 << 30)", ""]
    return "\n".join(indent + line for line in lines)


KILLED = "was killed by signal 9 (SIGKILL), most likely by the kernel, for want of memory"


def test_a_load_that_the_kernel_kills_for_memory_is_told(serve, write_model, narrow):
    folder = write_model("m")
    write_model("small")
    server = serve("--model-control-mode=explicit", "--load-model=*").ready()
    (folder / "1" / "model.py").write_text(entering(narrow) + ADD_ONE)
    status, body = server.ask("POST", "/v2/repository/models/m/load", {})
    assert status == 400 and KILLED in body["error"] and "is free again" in body["error"], body
    assert KILLED in index(server)["m"]["reason"]
    server.says("failed to load 'm' version 1")
    for name in ("m", "small"):
        assert server.infer(name, [1.0])[1]["outputs"][0]["data"] == [2.0]


def test_an_execution_that_the_kernel_kills_for_memory_is_answered(serve, write_model, narrow):
    write_model("m", in_compute("if a[0] == 7:\n" + entering(narrow, "    ")))
    server = serve().ready()
    status, body = server.infer("m", [7.0])
    assert status == 503 and KILLED in body["error"] and "lower the 'count'" in body["error"], body
    assert server.infer("m", [1.0])[0] == 200


def test_a_load_that_somebody_else_kills_is_no_want_of_memory(serve, write_model):
    write_model("m", "import os\nos.kill(os.getpid(), 9)\n" + ADD_ONE)
    server = serve("--exit-on-error=false").ready()
    reason = index(server)["m"]["reason"]
    assert "was killed by signal 9 (SIGKILL) before it could load the model" in reason, reason


# ---- executions


def test_an_execution_that_runs_out_of_memory_is_answered_and_the_worker_lives_on(serve, write_model):
    code = in_compute("if a[0] == 7:\n    import numpy as np\n    np.ones(1 << 33, np.uint8)")
    write_model("m", limited(code))
    server = serve().ready()
    worker = server.worker("m_0")
    status, body = server.infer("m", [7.0])
    assert status == 503
    error = body["error"]
    assert "instance m_0 of model 'm' ran out of memory (8.0 GiB were asked for) executing a batch of 1" in error
    assert "retry later" in error and "Unable to allocate" in error
    assert server.infer("m", [1.0])[0] == 200 and server.worker("m_0") == worker
    server.said(lambda record: "Unable to allocate" in record.get("traceback", ""), "its traceback")
    assert server.end() == 0
    assert sum("Unable to allocate" in record.get("traceback", "") for record in server.log) == 1


def test_batches_that_do_not_fit_are_executed_in_halves(serve, write_model):
    config = (
        CONFIG.replace("dims: [ -1 ]", "dims: [ 1 ]")
        + "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 preferred_batch_size: [ 8 ] }"
        + 'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "halves" } }'
    )
    code = ADD_ONE.replace(
        "        answers = []\n",
        "        answers = []\n        if len(requests) > 2:\n            raise MemoryError('too many')\n",
    )
    write_model("m", code, config)
    server = serve().ready()
    answers = []

    def ask(value: float) -> None:
        tensor = {"name": "A", "shape": [1, 1], "datatype": "FP32", "data": [value]}
        status, body = server.ask("POST", "/v2/models/m/infer", {"inputs": [tensor]})
        answers.append((status, value, body["outputs"][0]["data"][0] if status == 200 else body))

    threads = [threading.Thread(target=ask, args=(float(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(200, float(n), float(n + 1)) for n in range(8)]
    server.says("its halves are executed")


# ---- the budget


@pytest.fixture
def two_models(serve, write_model):
    """Of 80 MB each, where only one may be awake."""
    for name in ("a", "b"):
        write_model(name, with_ballast(80))
    return serve("--model-memory-budget=120MB").ready()


def test_models_sleep_for_each_other_and_no_request_is_lost(two_models):
    server = two_models
    server.says("is put to sleep")
    (asleep,) = [name for name, entry in until(lambda: index(server), "an index").items() if entry.get("reason")]
    awake = "b" if asleep == "a" else "a"
    assert index(server)[asleep]["state"] == "READY" and "a request wakes it" in index(server)[asleep]["reason"]
    assert server.model_ready(asleep) and server.ask("GET", "/v2/health/ready")[0] == 200
    mark = len(server.log)
    assert server.infer(asleep, [1.0])[1]["outputs"][0]["data"] == [2.0]
    server.says(f"{awake} version 1 is put to sleep", after=mark)
    print(server.says(f"{asleep} version 1 was woken by a request within", after=mark)["message"])
    assert metric(server, "tisfast_model_asleep", awake) == 1 and metric(server, "tisfast_model_asleep", asleep) == 0
    assert metric(server, "tisfast_model_wakes_total", asleep) == 1
    assert metric(server, "tisfast_model_memory_bytes", asleep) > 80 * MB
    answers = []
    asking = [in_background(lambda n=n: answers.append(server.infer("ab"[n % 2], [float(n)]))) for n in range(12)]
    for thread in asking:
        thread.join()
    assert [status for status, _ in answers] == [200] * 12
    assert server.end() == 0


def test_a_model_that_does_not_wake_says_so(serve, write_model, tmp_path):
    gate = tmp_path / "no-more"
    broken = f"import os\nif os.path.exists({str(gate)!r}):\n    raise ValueError('cannot load any more')\n"
    for name in ("a", "b"):
        write_model(name, broken + with_ballast(80))
    server = serve("--model-memory-budget=120MB").ready()
    said = server.says("is put to sleep")["message"]
    asleep = said[0]
    gate.touch()
    status, body = server.infer(asleep, [1.0])
    assert status == 503 and "cannot load any more" in body["error"]
    gate.unlink()
    until(lambda: server.infer(asleep, [1.0])[0] == 200, "the model, when it loads again")


def test_a_sleeping_model_is_changed_and_unloaded_like_any_other(serve, write_model):
    folders = [write_model(name, with_ballast(80)) for name in ("a", "b")]
    server = serve("--model-memory-budget=120MB", "--model-control-mode=explicit", "--load-model=*").ready()
    asleep = server.says("is put to sleep")["message"][0]
    folder = folders["ab".index(asleep)]
    (folder / "config.pbtxt").write_text(CONFIG + "instance_group { count: 2 kind: KIND_CPU }")
    assert server.ask("POST", f"/v2/repository/models/{asleep}/load")[0] == 200  # an instance more, and it is awake
    until(lambda: server.infer(asleep, [1.0])[0] == 200, "an answer")
    (folder / "1" / "model.py").write_text(with_ballast(80).replace("a + 1", "a + 2"))
    assert server.ask("POST", f"/v2/repository/models/{asleep}/load")[0] == 200
    assert server.infer(asleep, [1.0])[1]["outputs"][0]["data"] == [3.0]
    until(lambda: any(entry.get("reason", "").startswith("asleep") for entry in index(server).values()), "a sleeper")
    for name in ("a", "b"):
        assert server.ask("POST", f"/v2/repository/models/{name}/unload")[0] == 200
    ours = ("a_", "b_")
    until(lambda: not any(name.startswith(ours) for name in server.of_family(psutil.Process.name)), "no workers")
    assert server.end() == 0


def test_without_a_budget_nobody_is_measured(serve, write_model):
    write_model("m")
    server = serve().ready()
    assert metric(server, "tisfast_model_memory_bytes", "m") == -1


# ---- GPUs, of a library of the tests' own

LIBRARY = """
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static long number(void *device) { return (long)device - 1; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(long)(index + 1);
    return index > 1;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return 1; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *part, void **whole) { return 1; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory)
{
    const char *free_gigabytes = getenv(number(device) ? "FREE_1" : "FREE_0");
    memory->total = 80ull << 30;
    memory->free = (unsigned long long)atoi(free_gigabytes ? free_gigabytes : "0") << 30;
    memory->used = memory->total - memory->free;
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    snprintf(uuid, size, "GPU-%ld", number(device));
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, void *out) { return 3; }
int nvmlDeviceGetPowerUsage(void *device, void *out) { return 3; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, void *out) { return 3; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, void *out) { return 3; }
"""
WHERE = ADD_ONE.replace("self.compute(a)", "a * 0 + float(__import__('os').environ['CUDA_VISIBLE_DEVICES'])")


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Two GPUs of 80 GB; free: gigabytes of each."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "nvml.c").write_text(LIBRARY)
    library = folder / "libnvidia-ml.so.1"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, folder / "nvml.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def free(first: int, second: int) -> None:
        monkeypatch.setenv("FREE_0", str(first))
        monkeypatch.setenv("FREE_1", str(second))

    return free


def test_instances_go_to_the_gpu_with_most_memory_free(serve, write_model, gpus):
    gpus(10, 60)
    by_memory = 'parameters { key: "GPU_PLACEMENT" value { string_value: "free_memory" } }'
    write_model("one", WHERE, CONFIG + by_memory + "instance_group { kind: KIND_GPU count: 1 }")
    write_model("each", WHERE, CONFIG)
    server = serve().ready()
    assert server.infer("one", [0.0])[1]["outputs"][0]["data"] == [1.0]
    started = [record["instance"] for record in server.log if "is ready (pid" in record["message"]]
    assert sorted(started) == ["each_0", "each_1", "one_0_0"]  # KIND_AUTO: one on each GPU, as Triton
    seen = {server.infer("each", [0.0])[1]["outputs"][0]["data"][0] for _ in range(20)}
    assert seen <= {0.0, 1.0}


def test_a_gpu_over_its_limit_takes_no_model(serve, write_model, gpus):
    gpus(10, 60)
    write_model("m", WHERE, CONFIG + "instance_group { kind: KIND_GPU gpus: [ 0 ] }")
    write_model("other", WHERE, CONFIG + "instance_group { kind: KIND_GPU gpus: [ 1 ] }")
    server = serve("--exit-on-error=false", "--model-load-gpu-limit=0:0.6").ready()
    reason = index(server)["m"]["reason"]
    assert "memory limit set for GPU 0 has exceeded, model loading is rejected." in reason
    assert index(server)["other"]["state"] == "READY"


def test_a_killed_worker_is_not_taken_for_one_without_memory(serve, write_model):
    write_model("m")
    server = serve().ready()
    os.kill(server.worker("m_0"), signal.SIGKILL)
    assert "want of memory" not in server.says("was killed by signal 9")["message"]
