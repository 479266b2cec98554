"""A GPU that hangs, as the server sees it: only requests that touch it wait, and they are told in their time."""

from __future__ import annotations

import base64
import re
import signal
import struct
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as system

from tests.gpu.gpu_models import CONFIG, FLOATS, GPU, MADE, RETURNED, STAYS, WHERE, asked, ensemble
from tests.gpu.stand_in_driver import logged
from tests.system.helpers import until
from tisfast import limits

SMALL, LONG = 4096, 4 << 20
VALUES = np.arange(LONG // 4, dtype=np.float32)
HOST = CONFIG.replace('"A"', '"B"')
TWICE = WHERE.replace('"A"', '"B"').replace("t.as_numpy()", "t.as_numpy() * 2")
EAGER = (
    "dynamic_batching { default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 300000 "
    "allow_timeout_override: true } }"
)
WAITS = """    def execute(self, requests):
        if os.path.exists("FOLDER/wait"):
            open("FOLDER/begun", "w").close()
        while os.path.exists("FOLDER/wait"):
            pass
"""
HUNG, GOOD = 1, 0
"""GPUs, as regions are registered with them."""


def registered(client, name, memory, device):
    client.register_cuda_shared_memory(name, base64.b64encode(memory.handle), device, memory.nbytes)


@pytest.fixture
def served(stand_in, serve, write_model, connect, export, tmp_path):  # noqa: PLR0917
    """served(module): a server with the model m, its client, and `infer(**call)` with a client of its own.

    Regions of both GPUs are registered: hung and hung_out, good and good_out.
    """
    write_model("m", TWICE, HOST)
    write_model("eager", TWICE, f"max_batch_size: 0 {HOST} {EAGER}")
    for device in (HUNG, GOOD):
        code = RETURNED.replace("    def execute(self, requests):\n", WAITS.replace("FOLDER", str(tmp_path)))
        config = HOST + GPU.replace("0", str(device)) + STAYS
        write_model(f"same{device}", code.replace("import triton", "import os\nimport triton"), config)

    class Served:
        def __init__(self, module, seconds=1):
            self.module = module
            self.server = serve("--allow-client-shm=true", f"--exit-timeout-secs={seconds}").ready()
            self.client = connect(self.server, module)
            self.memory = {}
            for name, device in (("hung", HUNG), ("hung_out", HUNG), ("good", GOOD), ("good_out", GOOD)):
                self.memory[name] = export(LONG)
                self.memory[name].write(VALUES.tobytes())
                registered(self.client, name, self.memory[name], device)

        def connected(self):
            ready = self.server.said(lambda r: r.get("event") == "ready", "ready")
            port = ready["grpc_port" if self.module is tritonclient.grpc else "http_port"]
            return self.module.InferenceServerClient(f"localhost:{port}")

        def unregister(self, name):
            with self.connected() as client:
                client.unregister_cuda_shared_memory(name)

        def infer(self, model, region, nbytes=SMALL, output=None, **more):
            """With a client of its own: tritonclient's over HTTP belong to their thread."""
            call = asked(self.module, nbytes, 0, output, "B", region or "good")
            if region is None:
                call["inputs"][0] = self.module.InferInput("B", [nbytes // 4], "FP32")
                call["inputs"][0].set_data_from_numpy(VALUES[: nbytes // 4])
            with self.connected() as client:
                return client.infer(model, **call, **more)

    return Served


def is_held(stand_in, before, more=1):
    return lambda: stand_in.counted()["operations_held"] >= before + more


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("nbytes", [SMALL, LONG])
@pytest.mark.parametrize("case", ["input", "output", "returned", "across"])
def test_only_requests_that_touch_it_wait(stand_in, served, module, nbytes, case):
    use = served(module)
    given, output = {"output": (None, "hung_out"), "across": ("good", "hung_out")}.get(case, ("hung", None))
    model = {"returned": f"same{HUNG}", "across": f"same{GOOD}"}.get(case, "m")
    before, times = stand_in.counted()["operations_held"], 2 if model == "m" else 1
    more = limits.COPY_THREADS_MAX + 1
    with ThreadPoolExecutor(more) as threads:
        with stand_in.holding(device=HUNG):
            waiting = [threads.submit(use.infer, model, given, nbytes, output) for _ in range(more)]
            until(is_held(stand_in, before), "the copy hangs")
            assert use.client.is_server_live()
            assert use.infer("m", "good", output="good_out").get_output("B")
            assert (np.frombuffer(use.memory["good_out"].read(SMALL), np.float32) == VALUES[:1024] * 2).all()
            region = system.create_shared_memory_region("host", "/tisfast_hangs", LONG)
            try:  # a long copy of host memory, which shared threads make
                use.client.register_system_shared_memory("host", "/tisfast_hangs", LONG)
                use.infer("m", None, LONG, "host")
                assert (system.get_contents_as_numpy(region, np.float32, [LONG // 4]) == VALUES * 2).all()
            finally:
                system.destroy_shared_memory_region(region)
            assert not any(each.done() for each in waiting)
        answers = [each.result(60) for each in waiting]
    if output is None:
        assert all((each.as_numpy("B") == VALUES[: nbytes // 4] * times).all() for each in answers)
    else:
        found = np.frombuffer(use.memory[output].read(nbytes), np.float32)
        assert (found == VALUES[: nbytes // 4] * times).all()
    assert stand_in.counted()["used_after_free"] == 0


def test_a_step_of_an_ensemble_that_needs_it_in_host_memory_waits_alone(stand_in, serve, write_model, connect, export):
    write_model("m0", TWICE, HOST)
    (write_model("m", "", ensemble("B", ("A", "x"), ("x", "B")).replace('"m1"', '"m0"')) / "1/model.py").unlink()
    server = serve("--allow-client-shm=true").ready()
    client, memory = connect(server, tritonclient.grpc), export(LONG)
    memory.write(VALUES.tobytes())
    registered(client, "given", memory, HUNG)
    before = stand_in.counted()["operations_held"]
    with ThreadPoolExecutor(1) as threads:
        with stand_in.holding(device=HUNG):
            answer = threads.submit(client.infer, "m", **asked(tritonclient.grpc, SMALL))
            until(is_held(stand_in, before), "the copy hangs")
            assert client.is_server_live() and not answer.done()
        assert (answer.result(60).as_numpy("B") == VALUES[:1024] * 4).all()


def test_a_request_that_waits_is_told_in_its_time(stand_in, served):
    use = served(tritonclient.grpc)
    with stand_in.holding(device=HUNG):
        for seconds, more in ((0.3, {}), (0.001, {"timeout": 1000})):
            text = (
                rf"Request timeout expired \(waited {seconds} s, which is its timeout, in front of the queue for GPU "
                f"{HUNG} .* to copy tensor 'B' of model 'eager', in region 'hung': it hangs, or is busy with others' "
                "work. Look whether 'nvidia-smi' answers"
            )
            with pytest.raises(InferenceServerException, match=text):
                use.infer("eager", "hung", **more)
        assert use.infer("eager", "good").get_output("B")
    assert (use.infer("eager", "hung").as_numpy("B") == VALUES[:1024] * 2).all()


def test_the_log_says_once_which_gpu_is_waited_for_until_it_has_gone_on(stand_in, served, export):
    use, memory = served(tritonclient.http), export(SMALL)
    held, pid = stand_in.counted()["operations_held"], use.server.process.pid

    def registers():
        with use.connected() as client:
            registered(client, "late", memory, HUNG)

    def told(call, waiting):
        return (
            f"{logged(HUNG)} has not ended a call ({call}) for 5 s, and {waiting}: it hangs, or is busy with others' "
            "work. The server refuses a request when one of its copies has taken 60 s, the registration of a region "
            "after 45 s, and an instance that asks for memory after 25 s. Look whether 'nvidia-smi' answers; if "
            "requests for it go on failing, reset it (nvidia-smi --gpu-reset -i UUID; see 'nvidia-smi -L' and the "
            "server's log) and start the server again"
        )

    def all_told():
        return [record["message"] for record in use.server.log if "has not ended a call" in record["message"]]

    others = "a copy of more than 1048576 bytes, or opening, closing or allocating memory"
    with ThreadPoolExecutor(4) as threads:
        with stand_in.holding(device=HUNG):
            short = [threads.submit(use.infer, "m", "hung") for _ in range(2)]
            until(is_held(stand_in, held), "a copy hangs")
            call = "a copy of at most 1048576 bytes; for tensor 'B' of model 'm', in region 'hung'"
            use.server.says(told(call, "1 other call waits"))
            long = threads.submit(use.infer, "m", "hung", LONG)
            until(is_held(stand_in, held, 2), "another one hangs")
            use.infer("m", "good")
        for each in (*short, long):
            each.result(60)
        assert len(all_told()) == 1
        with stand_in.hanging("cuIpcOpenMemHandle_v2", pid=pid):
            late = threads.submit(registers)
            use.server.says(told(f"{others}; for region 'late'", "no other calls wait"))
        late.result(60)
        assert use.server.process.poll() is None and len(all_told()) == 2


def test_what_only_a_closing_waits_for_is_told_by_the_closing(stand_in, served):
    use = served(tritonclient.http)
    with ThreadPoolExecutor(1) as threads:
        with stand_in.hanging("cuIpcCloseMemHandle", pid=use.server.process.pid):
            gone = threads.submit(use.unregister, "hung")
            use.server.says(f"shared memory region 'hung' unregistered, but not closed within 5 s: {logged(1)} hangs")
        gone.result(60)
    assert "has not ended a call" not in use.server.text()


def test_a_client_that_leaves_is_forgotten(stand_in, served):
    use = served(tritonclient.grpc)
    with stand_in.holding(device=HUNG):
        with pytest.raises(InferenceServerException, match=r"Deadline Exceeded|CANCELLED"):
            use.infer("m", "hung", client_timeout=0.5)
        until(lambda: use.server.pending("m") == 0, "nobody waits")
        assert use.infer("m", "good").get_output("B")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_all_the_same(stand_in, served, number):
    use = served(tritonclient.http)
    before = stand_in.counted()["operations_held"]
    with ThreadPoolExecutor(1) as threads, stand_in.holding(device=HUNG):
        answer = threads.submit(use.infer, "m", "hung")
        until(is_held(stand_in, before), "the copy hangs")
        assert use.server.end(number) == 1  # the request was not answered within --exit-timeout-secs
        assert answer.exception(60) is not None


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_who_registers_is_told_when_the_server_ends(stand_in, served, export, module):
    use, memory = served(module, seconds=60), export(SMALL)

    def registers():
        with use.connected() as client:
            registered(client, "late", memory, HUNG)

    text = (
        f"failed to register shared memory region 'late': the server ends, and GPU {HUNG} has not opened the memory "
        "yet. Free the memory when the server has ended"
    )
    pid = use.server.process.pid
    with ThreadPoolExecutor(1) as threads, stand_in.hanging("cuIpcOpenMemHandle_v2", pid=pid) as begun:
        late = threads.submit(registers)
        until(begun, "it is being opened")
        assert use.server.end() == 0
        told = late.exception(60)
    assert isinstance(told, InferenceServerException) and told.message() == text
    assert told.status() in {"503", "StatusCode.UNAVAILABLE"}


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_a_region_that_cannot_be_opened_now_holds_nobody_up(stand_in, served, export, module):
    use, memory = served(module), export(SMALL)
    pid = use.server.process.pid

    def registers():
        with use.connected() as client:
            registered(client, "late", memory, HUNG)

    with ThreadPoolExecutor(1) as threads:
        with stand_in.hanging("cuIpcOpenMemHandle_v2", pid=pid) as begun:
            late = threads.submit(registers)
            until(begun, "it is being opened")
            with pytest.raises(InferenceServerException, match="'late' already in manager"):
                registered(use.client, "late", memory, HUNG)
            assert use.client.is_server_live()
            assert use.infer("m", "good").get_output("B")
            assert not late.done()
        late.result(60)
    memory.write(VALUES[:1024].tobytes())
    assert (use.infer("m", "late").as_numpy("B") == VALUES[:1024] * 2).all()


def test_a_registration_does_not_ask_what_is_known_of_the_gpus(stand_in, served, export):
    use, memory = served(tritonclient.http), export(SMALL)

    def registers():
        with use.connected() as client:
            registered(client, "late", memory, GOOD)

    with ThreadPoolExecutor(1) as threads, stand_in.hanging("nvmlDeviceGetUUID", pid=use.server.process.pid):
        late = threads.submit(registers)
        late.result(60)
        assert use.server.ask("GET", "/v2/health/live")[0] == 200


def test_a_region_that_cannot_be_closed_now_holds_nobody_up(stand_in, served):
    use = served(tritonclient.http)
    closed = stand_in.counted()["closed"]
    with ThreadPoolExecutor(1) as threads:
        with stand_in.hanging("cuIpcCloseMemHandle", pid=use.server.process.pid) as begun:
            gone = threads.submit(use.unregister, "hung")
            until(begun, "it is being closed")
            assert use.client.is_server_live()
            assert use.infer("m", "good").get_output("B")
            assert use.infer("m", "hung_out").get_output("B")  # of the same GPU, which waits for nothing
            assert not gone.done()
        gone.result(60)
    assert stand_in.counted()["closed"] > closed


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("name", ["hung_out", ""])
def test_what_is_unregistered_may_be_freed(stand_in, served, module, name):
    use = served(module)
    before = stand_in.counted()

    def freed():
        use.unregister(name)
        for each in [name] if name else [each for each in use.memory if each != "hung"]:
            use.memory[each].free()

    with ThreadPoolExecutor(2) as threads:
        with stand_in.holding(device=HUNG):
            answer = threads.submit(use.infer, "m", "hung", LONG)  # has the thread for long copies busy
            until(is_held(stand_in, before["operations_held"]), "the copy hangs")
            gone = threads.submit(freed)
            until(lambda: name not in regions_of(use) if name else not regions_of(use), "it is registered no more")
            assert not wait({gone}, 1).done
        assert (answer.result(60).as_numpy("B") == VALUES * 2).all()  # its own memory is closed when it is answered
        gone.result(60)
    assert stand_in.counted()["freed_while_open"] == before["freed_while_open"]


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("busy", [False, True])
def test_what_an_instance_had_open_may_be_freed_when_it_is_unregistered(  # noqa: PLR0917
    stand_in, served, export, tmp_path, module, busy
):
    use = served(module)
    before = stand_in.counted()
    for _ in range(1 if busy else 10):
        memory = export(SMALL)
        memory.write(VALUES[:1024].tobytes())
        registered(use.client, "once", memory, GOOD)
        assert (use.infer(f"same{GOOD}", "once").as_numpy("B") == VALUES[:1024]).all()
        with ThreadPoolExecutor(2) as threads:
            if busy:
                (tmp_path / "wait").touch()
                long = threads.submit(use.infer, f"same{GOOD}", "good")
                until((tmp_path / "begun").exists, "the instance executes")
            gone = threads.submit(use.unregister, "once")
            if busy:
                until(lambda: "once" not in regions_of(use), "it is registered no more")
                assert not wait({gone}, 1).done
                (tmp_path / "wait").unlink()
                long.result(60)
            gone.result(60)
        memory.free()
        memory.end()
    assert stand_in.counted()["freed_while_open"] == before["freed_while_open"]


def regions_of(use):
    """Names of what is registered."""
    _, found = use.server.ask("GET", "/v2/cudasharedmemory/status")
    return {each["name"] for each in found}


def test_a_driver_that_does_not_begin_holds_nobody_up(stand_in, serve, write_model, connect, export):
    write_model("m", TWICE, HOST)
    server = serve("--allow-client-shm=true").ready()
    memory = export(SMALL)
    client = connect(server, tritonclient.grpc)
    with ThreadPoolExecutor(1) as threads:
        with stand_in.hanging("cuInit", pid=server.process.pid) as begun:
            late = threads.submit(registered, client, "given", memory, GOOD)
            until(begun, "the driver begins")
            assert client.is_server_live() and not late.done()
        late.result(60)


def test_memory_that_cannot_be_allocated_now_holds_nobody_up(stand_in, serve, write_model, connect):
    floats = HOST + GPU
    write_model("m0", MADE, floats)
    write_model("m1", RETURNED.replace("assert not any(tensor.is_cpu() for tensor in found)", ""), floats + STAYS)
    (write_model("m", "", ensemble("B", ("A", "x"), ("x", "B"))) / "1/model.py").unlink()
    server = serve().ready()
    client = connect(server, tritonclient.grpc)
    given = tritonclient.grpc.InferInput("A", [4], "FP32")
    given.set_data_from_numpy(VALUES[:4])
    with stand_in.hanging("cuMemAlloc_v2", pid=server.process.pid) as begun, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(client.infer, "m", [given])
        until(begun, "memory is asked for")
        assert client.is_server_live()
        stand_in.fail("cuMemAlloc_v2", 0)
        assert answer.result(60).as_numpy("B").tolist() == VALUES[:4].tolist()


def test_a_gpu_that_does_not_tell_its_memory_holds_up_only_who_is_placed_by_it(stand_in, serve, write_model, connect):
    by_memory = 'parameters { key: "GPU_PLACEMENT" value { string_value: "free_memory" } }'
    write_model("placed", WHERE, CONFIG + by_memory + "instance_group { kind: KIND_GPU count: 1 }")
    server = serve("--model-control-mode=explicit", "--allow-gpu-metrics=false").ready()
    client, loader = (connect(server, tritonclient.grpc) for _ in range(2))
    with stand_in.hanging("nvmlDeviceGetMemoryInfo") as begun, ThreadPoolExecutor(1) as threads:
        loading = threads.submit(loader.load_model, "placed")
        until(begun, "memory is asked for")
        assert client.is_server_live() and not loading.done()
        stand_in.fail("nvmlDeviceGetMemoryInfo", 0)
        loading.result(60)
    assert client.is_model_ready("placed")


def test_strings_are_counted_when_they_have_come(stand_in, serve, write_model, connect, export):
    texts = CONFIG.replace("TYPE_FP32", "TYPE_STRING")
    write_model("m", WHERE, texts)
    client = connect(serve("--allow-client-shm=true").ready(), tritonclient.grpc)
    data = serialize_byte_tensor(np.array([b"one", b"", b"three"], dtype=object)).item()
    memory = export(len(data))
    memory.write(data)
    registered(client, "given", memory, HUNG)
    given = tritonclient.grpc.InferInput("A", [3], "BYTES")
    given.set_shared_memory("given", len(data))
    assert client.infer("m", [given]).as_numpy("B").tolist() == [b"one", b"", b"three"]
    given.set_shape([2])
    with pytest.raises(InferenceServerException, match="unexpected number of string elements 3 for inference input"):
        client.infer("m", [given])
    memory.write(struct.pack("<I", 1 << 20))
    with pytest.raises(InferenceServerException, match="expecting string of length 1048576|expected 2 string elements"):
        client.infer("m", [given])


def arena_bytes(server):
    """What requests of m take of its arena."""
    return float(re.search(r'tisfast_arena_bytes\{kind="used",model="m",version="1"\} (\S+)', server.metrics())[1])


def test_who_has_left_keeps_no_memory_and_nothing_is_written_for_them(stand_in, served):
    use = served(tritonclient.grpc)
    before = stand_in.counted()["operations_held"]
    with stand_in.holding(device=HUNG):
        for given, output in (("hung", None), ("hung", None), (None, "hung_out"), (None, "hung_out")):
            with pytest.raises(InferenceServerException, match=r"Deadline Exceeded|CANCELLED"):
                use.infer("m", given, LONG, output, client_timeout=0.5)
        with pytest.raises(InferenceServerException, match=r"Deadline Exceeded|CANCELLED"):
            use.infer(f"same{GOOD}", "good", LONG, "hung_out", client_timeout=0.5)
        until(is_held(stand_in, before), "a copy hangs")
        # One copy of each kind has begun, and has its memory until it ends.
        until(lambda: arena_bytes(use.server) < 1.1 * LONG, "the others have none")
        use.memory["hung_out"].write(bytes(LONG))
    until(lambda: arena_bytes(use.server) == 0, "those that had begun have ended, too")
    found = np.frombuffer(use.memory["hung_out"].read(LONG), np.float32)
    assert not found.any()


def test_an_ensemble_whose_answers_are_kept_answers_into_a_region(stand_in, serve, write_model, connect, export):
    write_model("m0", MADE, FLOATS + GPU + STAYS)
    kept = ensemble("B", ("A", "B")) + "response_cache { enable: true }"
    (write_model("m", "", kept) / "1/model.py").unlink()
    server = serve("--allow-client-shm=true", "--cache-config=local,size=1048576").ready()
    client, memory = connect(server, tritonclient.grpc), export(SMALL)
    registered(client, "out", memory, GOOD)
    given = tritonclient.grpc.InferInput("A", [4], "FP32")
    given.set_data_from_numpy(VALUES[:4])
    output = tritonclient.grpc.InferRequestedOutput("B")
    output.set_shared_memory("out", 16)
    for _ in range(2):
        memory.write(bytes(SMALL))
        client.infer("m", [given], outputs=[output])
        assert np.frombuffer(memory.read(16), np.float32).tolist() == VALUES[:4].tolist()
