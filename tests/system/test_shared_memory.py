"""Shared memory and classification with the real tritonclient, and clients that take their memory away."""

from __future__ import annotations

import os
import threading
import uuid

import numpy as np
import psutil
import pytest
from tritonclient import http as httpclient
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from tests.system.helpers import ROOT, until

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SLOW = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open("{began}", "w").close()
        while not os.path.exists("{go}"):
            time.sleep(0.01)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
                for r in requests]
"""
LABELLED = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" } ]
"""
VALUES = np.arange(150_000, dtype=np.float32)


@pytest.fixture
def region():
    """Regions made by tritonclient: region(nbytes) gives (key, handle), all gone at the end."""
    made = []

    def make(nbytes):
        key = f"/tisfast_system_{os.getpid()}_{uuid.uuid4().hex}"
        made.append(shm.create_shared_memory_region(key[1:], key, nbytes))
        return key, made[-1]

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)


@pytest.fixture
def connect():
    clients = []

    def to(server, **options):
        clients.append(httpclient.InferenceServerClient(f"127.0.0.1:{server.port}", **options))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


@pytest.fixture
def models(serve, write_model):
    """A server of ADD_ONE as `one`, and of what the test has written."""
    write_model("one")

    def start(*flags):
        return serve("--allow-client-shm=true", *flags).ready()

    return start


def given(name, region, values, datatype="FP32", offset=0):
    tensor = httpclient.InferInput(name, list(values.shape), datatype)
    nbytes = len(serialize_byte_tensor(values).item()) if datatype == "BYTES" else values.nbytes
    tensor.set_shared_memory(region, nbytes, offset)
    return tensor


def wanted(name, region, nbytes, offset=0):
    output = httpclient.InferRequestedOutput(name)
    output.set_shared_memory(region, nbytes, offset)
    return output


def descriptors(server):
    return psutil.Process(server.process.pid).num_fds()


def mapped(server, key):
    return sum(key.strip("/") in each.path for each in psutil.Process(server.process.pid).memory_maps(grouped=False))


def test_tensors_in_and_out_of_regions(models, connect, region):
    client = connect(models())
    source, handle = region(VALUES.nbytes + 64)
    target, result = region(VALUES.nbytes + 128)
    shm.set_shared_memory_region(handle, [VALUES], offset=64)
    client.register_system_shared_memory("in", source, VALUES.nbytes + 64)
    client.register_system_shared_memory("out", target, VALUES.nbytes + 128)
    assert [each["name"] for each in client.get_system_shared_memory_status()] == ["in", "out"]
    for _ in range(3):  # the second time from what is remembered
        answer = client.infer(
            "one", [given("A", "in", VALUES, offset=64)], outputs=[wanted("B", "out", VALUES.nbytes, 128)]
        )
        assert answer.get_output("B") == {"name": "B", "datatype": "FP32", "shape": [len(VALUES)]}
        got = shm.get_contents_as_numpy(result, np.float32, VALUES.shape, offset=128)
        np.testing.assert_array_equal(got, VALUES + 1)
        got[:] = 0
    client.unregister_system_shared_memory("in")
    client.unregister_system_shared_memory()
    assert client.get_system_shared_memory_status() == []


def test_strings_in_regions(serve, connect, region):
    client = connect(
        serve("--exit-on-error=false", "--allow-client-shm=true", repository=ROOT / "tests/oracle/models").ready()
    )
    texts = np.array([b"", b"text", "\N{SNOWMAN}".encode()], object)
    source, handle = region(100)
    shm.set_shared_memory_region(handle, [serialize_byte_tensor(texts)])
    client.register_system_shared_memory("in", source, 100)
    answer = client.infer(
        "types", [given("IN_STRING", "in", texts, "BYTES")], outputs=[wanted("OUT_STRING", "in", 50, 50)]
    )
    assert answer.get_output("OUT_STRING")["shape"] == [3]
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.object_, [3], offset=50), texts)


def test_the_gate_is_closed_unless_opened(serve, write_model, connect, region):
    write_model("one")
    client = connect(serve().ready())
    with pytest.raises(InferenceServerException, match="Client shared memory is disabled. Start the server with"):
        client.register_system_shared_memory("in", region(64)[0], 64)
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'in'"):
        client.infer("one", [given("A", "in", VALUES[:4])])
    assert client.get_system_shared_memory_status() == []


def test_an_output_that_does_not_fit(models, connect, region):
    client = connect(models())
    source, handle = region(64)
    shm.set_shared_memory_region(handle, [VALUES[:16]])
    client.register_system_shared_memory("in", source, 64)
    text = r"for output 'B' \(60 bytes\) should be at least 64 bytes to hold the results, in region 'in'$"
    with pytest.raises(InferenceServerException, match=text):
        client.infer("one", [given("A", "in", VALUES[:16])], outputs=[wanted("B", "in", 60)])
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [16]), VALUES[:16])


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so(models, connect):
    client = connect(models())
    with pytest.raises(InferenceServerException, match="failed to register CUDA shared memory region: 'c', GPUs not"):
        client.register_cuda_shared_memory("c", b"A" * 86 + b"==", 0, 64)
    assert client.get_cuda_shared_memory_status() == []


def test_a_file_truncated_after_registration(models, connect, region):
    server = models()
    client = connect(server)
    source, handle = region(VALUES.nbytes)
    client.register_system_shared_memory("r", source, VALUES.nbytes)
    os.truncate(f"/dev/shm{source}", 4096)
    with pytest.raises(InferenceServerException, match="has shrunk to 4096 bytes, 600000 are needed"):
        client.infer("one", [given("A", "r", VALUES)])
    with pytest.raises(InferenceServerException, match="has shrunk to 4096 bytes"):
        client.infer("one", [given("A", "r", VALUES[:4])], outputs=[wanted("B", "r", 16, 8192)])
    os.truncate(f"/dev/shm{source}", VALUES.nbytes)
    assert client.infer("one", [given("A", "r", VALUES)]).as_numpy("B")[-1] == 1


def test_a_client_that_truncates_all_the_time_cannot_end_the_server(models, connect, region):
    server = models()
    client = connect(server)
    nbytes = 4 << 20
    source, _ = region(nbytes)
    client.register_system_shared_memory("r", source, nbytes)
    values, stop, seen = np.zeros(nbytes // 4, np.float32), threading.Event(), set()

    def toggle():
        while not stop.is_set():
            os.truncate(f"/dev/shm{source}", 0)
            os.truncate(f"/dev/shm{source}", nbytes)

    other = threading.Thread(target=toggle)
    other.start()
    try:
        for _ in range(100):
            try:
                client.infer("one", [given("A", "r", values)], outputs=[wanted("B", "r", nbytes)])
                seen.add("served")
            except InferenceServerException as error:
                seen.add("refused" if "shrunk" in str(error) or "went away" in str(error) else str(error))
    finally:
        stop.set()
        other.join()
    assert seen <= {"served", "refused"}
    assert client.infer("one", [given("A", "r", values)]).as_numpy("B")[0] == 1
    assert server.process.poll() is None


WAITING = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open("{began}", "w").close()
        while not os.path.exists("{go}"):
            time.sleep(0.01)
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        a += os.getpid() * 0
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.array([a.sum(), os.getpid()], np.float32))])]
"""


def test_a_file_truncated_while_the_model_reads_it_fails_that_execution_alone(
    models, connect, region, write_model, tmp_path
):
    write_model("waiting", WAITING.format(began=tmp_path / "began", go=tmp_path / "go"))
    client = connect(models(), concurrency=2)
    source, handle = region(VALUES.nbytes)
    shm.set_shared_memory_region(handle, [VALUES])
    client.register_system_shared_memory("r", source, VALUES.nbytes)
    pending = client.async_infer("waiting", [given("A", "r", VALUES)])
    until((tmp_path / "began").exists, "the request executes")
    os.truncate(f"/dev/shm{source}", 4096)
    (tmp_path / "go").touch()
    with pytest.raises(InferenceServerException, match="input 'A' lies in a shared memory region of the client"):
        pending.get_result()
    os.truncate(f"/dev/shm{source}", VALUES.nbytes)
    served = [client.infer("waiting", [given("A", "r", VALUES)]).as_numpy("B") for _ in range(2)]
    assert served[0][0] == VALUES[:1024].sum() and served[0][1] == served[1][1]  # by one and the same worker


def test_what_a_model_writes_into_its_input_the_client_does_not_see(models, connect, region, write_model):
    write_model(
        "spoil",
        """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        a *= 2
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", a)])]
""",
    )
    client = connect(models())
    source, handle = region(VALUES.nbytes)
    target, result = region(VALUES.nbytes)
    shm.set_shared_memory_region(handle, [VALUES])
    client.register_system_shared_memory("in", source, VALUES.nbytes)
    client.register_system_shared_memory("out", target, VALUES.nbytes)
    for _ in range(3):
        client.infer("spoil", [given("A", "in", VALUES)], outputs=[wanted("B", "out", VALUES.nbytes)])
        np.testing.assert_array_equal(shm.get_contents_as_numpy(result, np.float32, VALUES.shape), 2 * VALUES)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, VALUES.shape), VALUES)


def test_a_model_that_dies_has_changed_no_input_so_that_retrying_is_safe(models, connect, region, write_model):
    """It works in the memory of the array, which is a view of its own."""
    write_model(
        "dies",
        """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        a *= 2
        os.kill(os.getpid(), 9)
""",
    )
    server = models()
    client = connect(server)
    pid = server.worker("dies_0")
    source, handle = region(VALUES.nbytes)
    shm.set_shared_memory_region(handle, [VALUES])
    client.register_system_shared_memory("in", source, VALUES.nbytes)
    with pytest.raises(InferenceServerException, match="; retrying is safe: a new instance is being started"):
        client.infer("dies", [given("A", "in", VALUES)])
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, VALUES.shape), VALUES)
    server.says(f"instance dies_0 of model 'dies' (pid {pid}) was killed by signal 9 (SIGKILL); its process lived for")


def test_a_deleted_file_serves_on(models, connect, region):
    client = connect(models())
    source, handle = region(64)
    shm.set_shared_memory_region(handle, [VALUES[:16]])
    client.register_system_shared_memory("r", source, 64)
    os.rename(f"/dev/shm{source}", f"/dev/shm{source}_gone")
    os.unlink(f"/dev/shm{source}_gone")
    assert client.infer("one", [given("A", "r", VALUES[:16])]).as_numpy("B")[-1] == 16
    with open(f"/dev/shm{source}", "wb"):  # for the client's own clean-up
        pass


def test_a_region_unregistered_during_use_lives_until_the_answer_is_in_it(
    models, connect, region, write_model, tmp_path
):
    write_model("slow", SLOW.format(began=tmp_path / "began", go=tmp_path / "go"))
    server = models()
    client = connect(server, concurrency=2)
    source, handle = region(128)
    shm.set_shared_memory_region(handle, [VALUES[:16]])
    client.register_system_shared_memory("r", source, 128)
    pending = client.async_infer("slow", [given("A", "r", VALUES[:16])], outputs=[wanted("B", "r", 64, 64)])
    until((tmp_path / "began").exists, "the request executes")
    client.unregister_system_shared_memory("r")
    assert client.get_system_shared_memory_status() == []
    assert mapped(server, source) == 1
    (tmp_path / "go").touch()
    assert pending.get_result().get_output("B")["shape"] == [16]
    np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [16], offset=64), VALUES[:16])
    until(lambda: mapped(server, source) == 0, "the mapping goes with its last user")


def test_thousands_of_registrations_leave_nothing(models, connect, region):
    server = models()
    client = connect(server)
    source, handle = region(256)
    shm.set_shared_memory_region(handle, [VALUES[:16]])
    client.infer("one", [httpclient.InferInput("A", [4], "FP32").set_data_from_numpy(VALUES[:4])])
    before = descriptors(server)
    for i in range(2000):
        client.register_system_shared_memory(f"r{i}", source, 256)
        if i % 100 == 0:
            client.infer("one", [given("A", f"r{i}", VALUES[:16])], outputs=[wanted("B", f"r{i}", 64, 64)])
        if i % 500 == 499:
            client.unregister_system_shared_memory()
        elif i % 2:
            client.unregister_system_shared_memory(f"r{i}")
    assert client.get_system_shared_memory_status() == []
    assert (mapped(server, source), descriptors(server)) == (0, before)


@pytest.mark.parametrize("binary", [True, False])
def test_classes_with_labels(models, connect, write_model, binary):
    (write_model("labelled", config=LABELLED) / "labels.txt").write_text("cat\ndog\n\N{SNOWMAN}\n")
    client = connect(models())
    tensor = httpclient.InferInput("A", [4], "FP32").set_data_from_numpy(np.array([5, 9, 7, 1], np.float32))
    output = httpclient.InferRequestedOutput("B", binary_data=binary, class_count=3)
    answer = client.infer("labelled", [tensor], outputs=[output])
    found = [each.decode() if isinstance(each, bytes) else each for each in answer.as_numpy("B")]
    assert found == ["10.000000:1:dog", "8.000000:2:\N{SNOWMAN}", "6.000000:0:cat"]
