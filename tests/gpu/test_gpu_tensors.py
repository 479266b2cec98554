"""Tensors that stay on the GPU: from a client's region to a model's process and back, with every copy counted."""

from __future__ import annotations

import os
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE
from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, RETURNED, STAYS, WHERE, asked, ensemble, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY, logged
from tests.system.helpers import until

NBYTES = 1 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
COPIES = ("host_to_device", "device_to_host", "device_to_device")


@pytest.fixture
def started(gpu, serve, write_model, connect):
    """started(code, config): (server, a client of it by the module)."""

    def start(code, config=CONFIG + GPU + STAYS, module=tritonclient.http, fault=""):
        write_model("m", code, config)
        server = serve("--allow-client-shm=true", fault=fault).ready()
        return server, connect(server, module)

    return start


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_a_client_s_tensor_reaches_the_model_where_it_lies(started, export, gpu, module):
    _, client = started(IDENTITY, module=module)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    before = gpu.counted()
    for offset in (0, 4096, NBYTES - 64):
        nbytes = min(4096, NBYTES - offset)
        answer = client.infer("m", **asked(module, nbytes, offset))
        assert answer.as_numpy("B").tolist() == VALUES[offset // 4 :][: nbytes // 4].tolist()
    after = gpu.counted()
    assert after["host_to_device"] == before["host_to_device"]  # the model was given no copy of it
    assert after["device_to_host"] - before["device_to_host"] == 3  # only answers travelled
    assert after["opened"] - before["opened"] == 1  # by the model's process, once


def test_a_tensor_that_is_returned_goes_from_region_to_region_on_the_gpu(started, export, gpu):
    _, client = started(RETURNED, (CONFIG + GPU + STAYS).replace('"A"', '"B"'))
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    before = gpu.counted()
    client.infer("m", **asked(tritonclient.http, output="wanted", name="B"))
    after = gpu.counted()  # before the exporter's own copy
    assert wanted.read(NBYTES) == VALUES.tobytes()
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 1]


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_an_output_is_written_where_the_client_wants_it(started, export, gpu, module):
    _, client = started(IDENTITY, module=module)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    before = gpu.counted()
    for offset in (NBYTES - 64, 4096):
        client.infer("m", **asked(module, 64, offset, "wanted"))
    after = gpu.counted()
    found = wanted.read(NBYTES)
    for at in (4096, NBYTES - 64):
        assert found[at : at + 64] == VALUES.tobytes()[at : at + 64]
    assert found.count(0) >= NBYTES - 128  # and nothing else was written
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 2]


def test_an_output_that_has_no_room_is_an_error_and_is_not_written(started, export, gpu):
    _, client = started(IDENTITY)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    request = asked(tritonclient.http, 256, 0, "wanted")
    request["outputs"][0].set_shared_memory("wanted", 128, 0)
    with pytest.raises(InferenceServerException, match=r"for output 'B' \(128 bytes\) should be at least 256 bytes"):
        client.infer("m", **request)
    assert wanted.read(256) == bytes(256)


def test_where_the_worker_cannot_open_the_client_s_memory_the_server_writes(started, export, stand_in):
    server, client = started(IDENTITY)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    stand_in.fail("cuIpcOpenMemHandle_v2", OUT_OF_MEMORY, after=1)  # the input, then no output
    for _ in range(2):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    assert wanted.read(NBYTES) == VALUES.tobytes()
    server.says(
        f"instance m_0_0 of model 'm' (pid {server.worker('m_0_0')}) cannot open region 'wanted' of GPU 0 "
        "(cuIpcOpenMemHandle_v2: out of memory): the server copies its tensors through host memory until"
    )


def test_each_request_of_a_batch_has_its_own_place(started, export, gpu):
    config = CONFIG + GPU + STAYS + "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100000 }"
    _, client = started(IDENTITY, config, tritonclient.grpc)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    answers: queue.Queue[object] = queue.Queue()
    before = gpu.counted()
    for at in range(8):
        request = asked(tritonclient.grpc, 4096, (7 - at) * 4096, "wanted")
        request["inputs"][0].set_shape([1, 1024])
        client.async_infer("m", callback=lambda result, error: answers.put(error), **request)
    assert [answers.get(timeout=30) for _ in range(8)] == [None] * 8
    after = gpu.counted()
    assert wanted.read(8 * 4096) == VALUES.tobytes()[: 8 * 4096]
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 8]


PART = f"""{IDENTITY.replace('"B", tensor', '"B", Part(tensor)')}

class Part:
    # The second half of a tensor of 1024 numbers.
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        from tisfast_worker import dlpack

        return dlpack.capsule_of(self.tensor, self.tensor.address() + 2048, [512], 11, self.__dlpack_device__())
"""


def test_a_part_of_an_input_under_another_name_stays_where_it_is(gpu, serve, write_model, connect, export):
    write_model("m0", PART, CONFIG + GPU + STAYS)
    write_model("m1", IDENTITY, CONFIG + GPU + STAYS)
    folder = write_model("m", "", ensemble("A", ("A", "x"), ("x", "B")))
    (folder / "1/model.py").unlink()
    client = connect(serve("--allow-client-shm=true").ready())
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    before = gpu.counted()
    client.infer("m", **asked(tritonclient.http, 4096, 0, "wanted"))
    after = gpu.counted()
    assert wanted.read(2048) == VALUES.tobytes()[2048:4096]
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 1]


@pytest.mark.parametrize("answer", ["tensor", 'pb_utils.Tensor.from_dlpack("B", tensor.to_dlpack())'])
def test_an_ensemble_of_three_hands_it_on_without_a_copy(gpu, serve, write_model, connect, export, answer):
    for at in range(3):
        code = RETURNED.replace("return tensor", f"return {answer}")
        write_model(f"m{at}", code, (CONFIG + GPU + STAYS).replace('"A"', '"B"'))
    folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "y"), ("y", "B")))
    (folder / "1/model.py").unlink()
    client = connect(serve("--allow-client-shm=true").ready())
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    before = gpu.counted()
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    after = gpu.counted()
    assert wanted.read(NBYTES) == VALUES.tobytes()
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 1]


@pytest.mark.parametrize("config", [CONFIG + "instance_group [ { kind: KIND_CPU } ]" + STAYS, CONFIG + GPU])
def test_others_get_it_in_host_memory(started, export, config):
    server, client = started(WHERE, config)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    server.says("on the CPU: [True]")


def test_a_model_on_two_gpus_gets_it_in_host_memory(started, export, stand_in):
    server, client = started(WHERE, CONFIG + GPU.replace("[ 0 ]", "[ 0, 1 ]") + STAYS)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    server.says("on the CPU: [True]")


TELLS = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        if args["model_instance_name"] == "m_0_1":
            while not os.path.exists(FOLDER + "/go"):
                open(FOLDER + "/begun", "w").close()
            if os.path.exists(FOLDER + "/fail"):
                raise RuntimeError("it is told to fail")

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.float32([t.is_cpu()]))]) for t in tensors]
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_grows_to_another_gpu_gets_it_in_host_memory_until_it_is_on_one_again(  # noqa: PLR0917
    stand_in, serve, write_model, connect, export, tmp_path, fails
):
    """No instance is told of memory of another GPU, which its process does not see."""
    folder = write_model("m", TELLS, CONFIG + GPU + STAYS)
    (folder / "1/model.py").write_text(TELLS.replace("FOLDER", repr(str(tmp_path))))
    server = serve("--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=m").ready()
    client = connect(server)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)

    def stays():
        return client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == [0]

    config, worker = (folder / "config.pbtxt").read_text(), server.worker("m_0_0")
    assert stays()
    if fails:
        (tmp_path / "fail").touch()
    (folder / "config.pbtxt").write_text(config.replace("[ 0 ]", "[ 0, 1 ]"))
    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(connect(server).load_model, "m")
        try:
            until((tmp_path / "begun").exists, "the second instance loads")
            assert not stays()  # it may take any request from the moment on when it has loaded
        finally:
            (tmp_path / "go").touch()
        if fails:
            with pytest.raises(InferenceServerException, match="it is told to fail"):
                loading.result(60)
            assert stays()
            return
        loading.result(60)
    assert server.worker("m_0_0") == worker and server.worker("m_0_1") != worker
    assert [stays() for _ in range(8)] == [False] * 8
    (folder / "config.pbtxt").write_text(config)
    client.load_model("m")
    assert stays()


def test_gpus_are_known_by_their_uuid(stand_in, serve, write_model, connect, export):
    stand_in.set(unlike=True)  # a client's GPU 0 is then the last one of the bus, as instances count
    write_model("here", IDENTITY, CONFIG + GPU.replace("0", "1") + STAYS)
    write_model("there", WHERE, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    first, last = (logged(bus).partition(" (")[2][:-1] for bus in (1, 0))
    server.says(
        f"GPUs by CUDA's numbers, which are the device_id of CUDA regions: 0 is {first} (Stand-in), GPU 1 of "
        f"instance_group; 1 is {last} (Stand-in), GPU 0 of instance_group"
    )
    before = stand_in.counted()
    client.infer("here", **asked(tritonclient.http, output="wanted"))
    after = stand_in.counted()
    assert wanted.read(NBYTES) == VALUES.tobytes()
    assert [after[name] - before[name] for name in COPIES] == [0, 0, 1]
    assert client.infer("there", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    server.says("on the CPU: [True]")


def test_a_region_that_its_client_frees_is_an_error_of_the_request_and_nothing_else(started, export, stand_in):
    _, client = started(IDENTITY)
    given, other = export(NBYTES), export(NBYTES)
    other.write(VALUES.tobytes())
    register(client, "given", given)
    given.free()
    with pytest.raises(InferenceServerException, match="GPU"):
        client.infer("m", **asked(tritonclient.http))
    client.unregister_cuda_shared_memory("given")
    register(client, "given", other)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()


def test_handles_are_closed_when_regions_go_and_when_workers_die(started, export, gpu):
    server, client = started(IDENTITY)
    before = gpu.counted()
    for _ in range(3):
        given = export(NBYTES)
        register(client, "given", given)
        client.infer("m", **asked(tritonclient.http))
        client.unregister_cuda_shared_memory("given")
    until(lambda: balance(gpu, before) == 0, "all handles are closed")
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    client.infer("m", **asked(tritonclient.http))
    worker = server.worker("m_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    assert gpu.counted()["used_after_free"] == 0


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        ("cuCtxSynchronize", LAUNCH_FAILED, "unspecified launch failure"),
        ("cuStreamSynchronize", LAUNCH_FAILED, "unspecified launch failure"),
        ("cuCtxSynchronize", 810, "error 810"),  # of MPS, after another client's fault
        ("cuCtxSynchronize", 226, "error 226"),  # of a fault that the hardware contains in this process
        ("cuCtxSynchronize", 721, "error 721"),  # of a cluster that was not launched as it must be
        ("cuCtxSynchronize", 911, "error 911"),  # of a graph in another process
    ],
)
def test_an_instance_whose_gpu_is_lost_is_started_again(started, export, stand_in, call, code, text):  # noqa: PLR0917
    server, client = started(IDENTITY)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    worker = server.worker("m_0_0")
    stand_in.fail(call, code, times=1)
    with pytest.raises(InferenceServerException, match=f"{call}: {text}"):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    assert wanted.read(NBYTES) == VALUES.tobytes()
    server.says("ends, as its process can use the GPU no more")
    assert "Traceback" not in server.text()


def test_a_copy_that_fails_is_told_with_its_output_and_the_driver_s_reason(started, export, stand_in):
    server, client = started(IDENTITY)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    stand_in.fail("cuMemcpyDtoDAsync_v2", OUT_OF_MEMORY, times=1)
    text = (
        f"a response of model 'm' cannot be sent: copying {NBYTES} bytes of tensor 'B' from region 'given' into "
        "region 'wanted' failed: cuMemcpyDtoDAsync_v2: out of memory"
    )
    with pytest.raises(InferenceServerException, match=text):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    assert wanted.read(NBYTES) == VALUES.tobytes()
    assert server.text().count(text) == 1
    assert "Traceback" not in server.text()


def test_an_answer_by_a_sender_ends_an_instance_whose_gpu_is_lost_too(started, export, stand_in):
    early = IDENTITY.replace("        return [", "        for request, tensor in zip(requests, found):\n"
        "            sender = request.get_response_sender()\n"
        "            answer = pb_utils.InferenceResponse([self.answer(tensor)])\n"
        "            sender.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
        "        return None\n        return [")  # fmt: skip
    server, client = started(early)
    given, wanted = export(NBYTES), export(NBYTES)
    register(client, "given", given)
    register(client, "wanted", wanted)
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    worker = server.worker("m_0_0")
    stand_in.fail("cuStreamSynchronize", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="unspecified launch failure"):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")


def test_outputs_of_a_client_that_has_left_are_not_written(started, export, gpu):
    waits = IDENTITY.replace("        found", """        import threading
        for request in requests:
            while request.request_id() == "waits" and not request.is_cancelled():
                threading.Event().wait(0.001)
        found""", 1)  # fmt: skip
    server, client = started(waits)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    before, ended = gpu.counted()["device_to_device"], threading.Event()
    with tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as grpc:
        given_up = {"request_id": "waits", "callback": lambda result, error: ended.set()}
        call = grpc.async_infer("m", **given_up, **asked(tritonclient.grpc, output="wanted"))
        call.cancel()
        assert ended.wait(60)
    client.infer("m", **asked(tritonclient.http))  # behind it: there is one instance
    assert wanted.read(NBYTES) == bytes(NBYTES)
    assert gpu.counted()["device_to_device"] == before


@pytest.mark.parametrize("shift", [-4096, 0, 4096])
def test_an_output_may_lie_upon_its_own_input(started, export, shift):
    _, client = started(IDENTITY)
    memory = export(NBYTES)
    memory.write(VALUES.tobytes())
    register(client, "given", memory)
    call = asked(tritonclient.http, nbytes=NBYTES - 8192, offset=4096)
    call["outputs"][0].set_shared_memory("given", NBYTES - 8192, 4096 + shift)
    given = memory.read(NBYTES)[4096:][: NBYTES - 8192]
    client.infer("m", **call)
    assert memory.read(NBYTES)[4096 + shift :][: NBYTES - 8192] == given


KEEPS = (
    NODE[: NODE.index("class TritonPythonModel")]
    + """
class TritonPythonModel:
    # It answers with the copy of the input before, and does not wait for the new one.
    def initialize(self, args):
        begin()
        self.stream, self.kept = ctypes.c_void_p(), Made(numpy.zeros(1 << 18, numpy.float32))
        call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def execute(self, requests):
        [tensor] = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        found = numpy.empty(1 << 18, numpy.float32)
        call("cuCtxSynchronize")
        call("cuMemcpyDtoH_v2", found.ctypes.data, self.kept.address, found.nbytes)
        source, nbytes = ctypes.c_uint64(tensor.address()), ctypes.c_size_t(tensor.nbytes())
        call("cuMemcpyDtoDAsync_v2", self.kept.address, source, nbytes, self.stream)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", found)])]
""".replace("        begin()\n", NODE.split("def initialize(self, args):\n")[1].split("    def execute")[0])
)


def test_a_region_is_its_client_s_again_when_the_gpu_has_read_it(started, export, stand_in):
    _, client = started(KEEPS)
    memory = export(NBYTES)
    memory.write(VALUES.tobytes())
    register(client, "given", memory)
    client.infer("m", **asked(tritonclient.http))
    stand_in.set(delay_us=300_000)
    for at in range(1, 4):
        memory.write((VALUES + at).tobytes())
        assert (client.infer("m", **asked(tritonclient.http)).as_numpy("B") == VALUES + at - 1).all(), at


def test_a_region_is_registered_again_where_the_server_has_lost_the_gpu(started, export, stand_in):
    _, client = started(WHERE, CONFIG)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="unspecified launch failure"):
            client.infer("m", **asked(tritonclient.http))
    client.unregister_cuda_shared_memory("given")
    register(client, "given", given)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()


def balance(gpu, before):
    """Handles that are open and were not before."""
    now = gpu.counted()
    return (now["opened"] - before["opened"]) - (now["closed"] - before["closed"])
