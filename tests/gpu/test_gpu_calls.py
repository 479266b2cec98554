"""Tensors of calls from model to model (BLS) that lie on the GPU: with every copy counted, and through deaths."""

from __future__ import annotations

import os
import queue
import signal
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE, STREAM, STREAMS, run, script
from tests.gpu.gpu_models import FLOATS, GPU, NBYTES, STAYS, asked, copies
from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY
from tests.system.helpers import client_of_thread, until

VALUES = np.arange(NBYTES // 4, dtype=np.float32)
CPU, ON_GPU = 0, 1  # TRITONSERVER_MEMORY_*
ONE_PART = "--cuda-memory-pool-byte-size=0:8388608"  # four of 2 MiB
FULL = np.arange(2097152 // 4, dtype=np.float32)  # fills one
TWICE = (
    NODE.replace(
        "self.request(model, script, memory).exec()",
        "self.first(lambda: self.request(model, script, memory).async_exec())",
    )
    + """
    def first(self, ask):
        import asyncio
        async def both():
            return (await asyncio.gather(ask(), ask()))[0]
        return asyncio.run(both())
"""
)


@pytest.fixture
def pair(gpu, serve, write_model, connect):
    """pair(*flags, configurations...): (server, client) of caller and other, each of which does as scripts say."""

    def start(*flags, caller=FLOATS + GPU + STAYS, other=FLOATS + GPU + STAYS, code=NODE):
        write_model("caller", code, caller)
        write_model("other", NODE, other)
        server = serve("--allow-client-shm=true", *flags).ready()
        return server, connect(server, tritonclient.http)

    return start


def through_regions(client, *steps, output="wanted"):
    return client.infer("caller", **asked(tritonclient.http, output=output, name="B"), parameters=script(*steps))


def test_a_client_s_tensor_goes_to_the_called_model_and_back_without_a_copy(pair, gpu, region):
    _, client = pair()
    region(client, "given", VALUES)
    wanted = region(client, "wanted")
    before = gpu.counted()
    for _ in range(3):
        through_regions(client, ["is_cpu", False], ["call", "other", [["is_cpu", False]]], ["is_cpu", False])
    assert copies(gpu, before) == [0, 0, 3]  # into the client's region
    assert wanted.read(NBYTES) == VALUES.tobytes()


def test_a_part_of_an_input_or_of_an_answer_is_passed_on_without_a_copy(pair, gpu, region):
    _, client = pair()
    region(client, "given", VALUES)
    before = gpu.counted()
    call = ["call", "other", [["is_cpu", False], ["part", 5, 900]]]
    answer = client.infer(
        "caller", **asked(tritonclient.http, name="B"),
        parameters=script(["part", 100, 1000], call, ["part", 10, 800], ["call", "other", []], ["is_cpu", False]),
    )  # fmt: skip
    assert answer.as_numpy("B").tolist() == VALUES[115:915].tolist()
    assert copies(gpu, before) == [0, 1, 0]  # the client's answer


def test_what_a_model_makes_is_copied_once_in_either_direction(pair, gpu):
    _, client = pair(ONE_PART)
    before = gpu.counted()
    for at in range(10):  # more than there is room for at one time
        there = [["is_cpu", False], ["made", 1]]
        answer = run(client, "caller", FULL, ["made", at], ["call", "other", there], ["is_cpu", False])
        assert answer.tolist() == (FULL + at + 1).tolist()
    # The models themselves: two to the GPU, and one back.  The client's answer: one back.
    assert copies(gpu, before) == [20, 20, 20]
    assert gpu.counted()["used_after_free"] == 0


def test_a_chain_of_calls_adds_one_copy_for_each_answer_that_is_new(pair, gpu):
    _, client = pair()
    before = gpu.counted()
    again = [["call", "other", []]] * 3
    assert run(client, "caller", VALUES, ["made", 0], *again, ["is_cpu", False]).tolist() == VALUES.tolist()
    assert copies(gpu, before) == [1, 1, 1]  # to the first; then the same memory goes to and fro


def test_a_model_that_takes_its_inputs_in_host_memory_gets_them_there(pair, gpu, region):
    _, client = pair(other=FLOATS + GPU)
    region(client, "given", VALUES)
    before = gpu.counted()
    there = [["is_cpu", True], ["made", 1]]
    answer = client.infer(
        "caller", **asked(tritonclient.http, name="B"), parameters=script(["call", "other", there], ["is_cpu", False])
    )
    assert answer.as_numpy("B").tolist() == (VALUES + 1).tolist()
    assert copies(gpu, before) == [1, 2, 1]  # to it and for the client; its answer comes on the GPU all the same


@pytest.mark.parametrize(("memory", "expected"), [(CPU, True), (ON_GPU, False), (None, False)])
def test_outputs_lie_where_they_are_preferred_or_where_the_model_left_them(pair, gpu, memory, expected):
    _, client = pair()
    before = gpu.counted()
    steps = ["call", "other", [["made", 1]], memory], ["is_cpu", expected]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 1).tolist()
    assert copies(gpu, before) == [1, 1, 0 if expected else 1]


def test_a_model_that_is_not_on_the_gpu_gets_answers_in_host_memory(pair, gpu):
    on_cpu = FLOATS + "instance_group [ { kind: KIND_CPU } ]"
    _, client = pair(caller=on_cpu, code=NODE.replace("def initialize", "def unused"))
    before = gpu.counted()
    steps = ["call", "other", [["made", 1]]], ["is_cpu", True]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 1).tolist()
    assert copies(gpu, before) == [1, 1, 0]


def test_an_ensemble_is_called_and_answers_on_the_gpu(pair, gpu, write_model):
    step = 'step {{ model_name: "last" model_version: -1 input_map {{ {} }} output_map {{ {} }} }}'
    write_model("last", NODE.replace('json.loads(request.parameters())["script"]', '"[]"'), FLOATS + GPU + STAYS)
    is_b = 'key: "B" value: "{}"'.format
    steps = " ".join([step.format(is_b("B"), is_b("x")), step.format(is_b("x"), is_b("C"))])
    config = FLOATS.replace('output [ { name: "B"', 'output [ { name: "C"')
    config = config.replace('backend: "python"', 'platform: "ensemble"')
    folder = write_model("e", "", f"{config}\nensemble_scheduling {{ {steps} }}")
    (folder / "1/model.py").unlink()
    code = NODE.replace('requested_output_names=["B"]', 'requested_output_names=["C"]').replace(
        "self.top = response.output_tensors()[0]",
        'self.top = pb_utils.Tensor.from_dlpack("B", response.output_tensors()[0])',
    )
    _, client = pair(code=code)
    before = gpu.counted()
    answer = run(client, "caller", VALUES, ["made", 1], ["call", "e", []], ["is_cpu", False])
    assert answer.tolist() == (VALUES + 1).tolist()
    assert copies(gpu, before) == [1, 1, 1]


def test_coroutines_call_on_the_gpu(pair, gpu):
    _, client = pair(code=TWICE)
    before = gpu.counted()
    for at in range(3):
        steps = ["made", at], ["call", "other", [["is_cpu", False], ["made", 1]]], ["is_cpu", False]
        assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + at + 1).tolist()
    assert copies(gpu, before) == [9, 9, 12]  # two calls each, at one time


def test_a_decoupled_model_calls_on_the_gpu(pair, gpu, connect):
    server, _ = pair(ONE_PART, caller=FLOATS + GPU + STREAMS, code=STREAM)
    client, answers = connect(server, tritonclient.grpc), queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result.as_numpy("B")))
    tensor = tritonclient.grpc.InferInput("B", list(FULL.shape), "FP32")
    tensor.set_data_from_numpy(FULL)
    before = gpu.counted()
    for at in range(5):
        steps = ["made", at], ["call", "other", [["is_cpu", False], ["made", 1]]], ["is_cpu", False]
        client.async_stream_infer("caller", [tensor], parameters=script(*steps))
        assert answers.get(timeout=60).tolist() == (FULL + at + 1).tolist()
    assert copies(gpu, before) == [10, 10, 10]


def test_a_decoupled_model_without_the_line_gets_host_memory_and_answers_on_the_gpu(pair, gpu, write_model):
    write_model("stream", STREAM, FLOATS + GPU + STREAMS)
    _, client = pair()
    before = gpu.counted()
    steps = ["made", 1], ["ask", "stream", [["is_cpu", True], ["made", 1]]], ["is_cpu", False]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()
    assert copies(gpu, before) == [2, 2, 1]


@pytest.mark.parametrize(
    ("pool", "told"), [(0, "is less than 8388608 bytes"), (8388608, "it has no room in the 2097152 bytes")]
)
def test_without_room_it_goes_by_way_of_host_memory(pair, gpu, pool, told):
    server, client = pair(f"--cuda-memory-pool-byte-size=0:{pool}")
    large, before = np.tile(VALUES, 3), gpu.counted()
    for _ in range(2):
        there = [["is_cpu", True], ["made", 1]]
        answer = run(client, "caller", large, ["made", 1], ["call", "other", there], ["is_cpu", True])
        assert answer.tolist() == (large + 2).tolist()
    assert copies(gpu, before) == [4, 4, 0]
    server.says(told)


def test_where_handles_do_not_work_it_goes_by_way_of_host_memory(pair, stand_in):
    server, client = pair()
    stand_in.fail("cuIpcGetMemHandle", OUT_OF_MEMORY)
    there = [["is_cpu", True], ["made", 1]]
    answer = run(client, "caller", VALUES, ["made", 1], ["call", "other", there], ["is_cpu", True])
    assert answer.tolist() == (VALUES + 2).tolist()
    server.says("allocating 16777216 bytes of GPU memory failed: cuIpcGetMemHandle: out of memory")


def test_a_gpu_that_is_lost_in_a_call_ends_the_instance(pair, stand_in):
    server, client = pair()
    worker = server.worker("caller_0_0")
    run(client, "caller", VALUES, ["made", 1], ["call", "other", []])
    stand_in.fail("cuMemcpyDtoDAsync_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="of tensor 'B' into GPU memory for another model failed"):
        run(client, "caller", VALUES, ["made", 1], ["call", "other", []])
    until(lambda: server.worker("caller_0_0") != worker and client.is_model_ready("caller"), "it is started again")
    assert run(client, "caller", VALUES, ["made", 1], ["call", "other", []]).tolist() == (VALUES + 1).tolist()


def in_thread(server, *steps):
    """(thread, its outcome): a caller's answer, or its error."""
    found = []

    def ask():
        with client_of_thread(f"127.0.0.1:{server.port}", network_timeout=60) as client:
            try:
                found.append(run(client, "caller", VALUES, *steps))
            except InferenceServerException as error:
                found.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, found


def test_a_caller_s_death_takes_nothing_away_from_the_called_model(pair, gpu, tmp_path):
    server, client = pair(ONE_PART, other=FLOATS + GPU.replace("[ {", "[ { count: 2") + STAYS)
    asking, found = in_thread(server, ["made", 1], ["call", "other", [["wait", str(tmp_path)], ["made", 1]]])
    until((tmp_path / "here").exists, "other has the tensor")
    worker = server.worker("caller_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker("caller_0_0") != worker and client.is_model_ready("caller"), "it is back")
    for at in range(3):  # what the dead one was lent is not lent again meanwhile
        assert run(client, "caller", FULL, ["made", at], ["call", "other", []]).tolist() == (FULL + at).tolist()
    (tmp_path / "go").touch()
    asking.join(60)
    assert "instance" in found[0]
    assert gpu.counted()["used_after_free"] == 0


def test_the_called_model_s_death_is_an_error_and_gives_all_back(pair, gpu, tmp_path):
    server, client = pair(ONE_PART)
    asking, found = in_thread(server, ["made", 1], ["call", "other", [["wait", str(tmp_path)]]])
    until((tmp_path / "here").exists, "other has the tensor")
    worker = server.worker("other_0_0")
    os.kill(worker, signal.SIGKILL)
    asking.join(60)
    assert "other_0_0" in found[0]
    until(lambda: server.worker("other_0_0") != worker and client.is_model_ready("other"), "it is back")
    before = gpu.counted()
    for at in range(3):  # each fills the part
        answer = run(client, "caller", FULL, ["made", at], ["call", "other", [["made", 1]]])
        assert answer.tolist() == (FULL + at + 1).tolist()
    assert copies(gpu, before) == [6, 6, 6]
    assert gpu.counted()["used_after_free"] == 0


def test_an_answer_outlives_the_model_that_gave_it(pair, gpu, tmp_path):
    server, client = pair(ONE_PART)
    asking, found = in_thread(server, ["call", "other", [["made", 1]]], ["wait", str(tmp_path)])
    until((tmp_path / "here").exists, "the caller has the answer")
    worker = server.worker("other_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker("other_0_0") != worker and client.is_model_ready("other"), "it is back")
    assert run(client, "other", VALUES, ["made", 3]).tolist() == (VALUES + 3).tolist()
    (tmp_path / "go").touch()
    asking.join(60)
    assert found[0].tolist() == (VALUES + 1).tolist()
    assert gpu.counted()["used_after_free"] == 0


def test_an_idle_instance_gives_back_what_it_was_lent(pair, gpu):
    _, client = pair()
    before = gpu.counted()
    steps = ["made", 1], ["call", "other", [["made", 1]]]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()

    def open_handles():
        after = gpu.counted()
        return after["opened"] - before["opened"] - (after["closed"] - before["closed"])

    assert open_handles() == 4  # each its own, and the other's
    until(lambda: open_handles() == 0, "all is closed")
    lent, before = gpu.allocated(), gpu.counted()
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()
    assert copies(gpu, before) == [2, 2, 2]
    assert gpu.allocated() == lent  # the same memory once more


def test_an_answer_stays_until_the_gpu_has_read_it(pair, gpu):
    _, client = pair(ONE_PART)
    steps = ["call", "other", [["made", 7]]], ["queued", "other", [["made", 1]]]
    for _ in range(3):
        assert run(client, "caller", FULL, *steps).tolist() == (FULL + 7).tolist()


def test_a_model_that_takes_no_gpu_memory_any_more_is_given_copies(pair, gpu, tmp_path):
    server, client = pair("--model-control-mode=explicit", "--load-model=*")
    steps = ["made", 1], ["call", "other", []], ["host"]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 1).tolist()
    (tmp_path / "models/other/config.pbtxt").write_text(FLOATS + GPU)
    client.load_model("other")
    before = gpu.counted()
    answer = run(client, "caller", VALUES, ["made", 1], ["call", "other", [["is_cpu", True]]], ["is_cpu", True])
    assert answer.tolist() == (VALUES + 1).tolist()
    assert copies(gpu, before) == [1, 1, 1]  # by the server
