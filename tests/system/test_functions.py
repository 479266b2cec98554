"""tisfast.serve and tisfast.export: a real server, functions of this process, and clients that ask them."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import psutil
import pytest
import tritonclient.http as httpclient
from numpy.typing import NDArray

import tisfast
from tests.system.helpers import ROOT, SECONDS_MAX, until
from tests.unused_ports import closed_port
from tisfast import Shape, Tensor
from tisfast.errors import BadRequest, Internal, TisError, Unavailable

F = np.float32
X = np.arange(4, dtype=F)


@pytest.fixture
def scratch(monkeypatch, tmp_path_factory):
    """A temporary folder of this test's own, in which nothing is left."""
    tmp_path_factory.getbasetemp()  # pytest's own folder lies elsewhere
    with tempfile.TemporaryDirectory(prefix="tf") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        until(lambda: not os.listdir(folder), "nothing is left in the temporary folder")


@pytest.fixture
def serve(scratch):
    """tisfast.serve at free ports; stopped in the end."""
    started = []

    def start(*functions, **options):
        started.append(tisfast.serve(*functions, **{"http_port": 0, "grpc_port": 0, **options}))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def add(a: NDArray[F], b: NDArray[F]) -> NDArray[F]:
    return a + b


def scale(x: float, by: float = 2.0) -> float:
    return x * by


def greet(name: str, times: int = 1) -> str:
    return f"hello {name} " * times


class Pair(NamedTuple):
    low: NDArray[F]
    high: NDArray[F]


def ends(x: Annotated[NDArray[F], Shape(-1, 4)]) -> Pair:
    return Pair(x.min(1), x.max(1))


def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def count(n: int) -> Iterator[int]:
    yield from range(n)


async def count_later(n: int) -> AsyncIterator[int]:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def later(x: NDArray[F]) -> NDArray[F]:
    await asyncio.sleep(0)
    return x + 1


def totals(x: Annotated[NDArray[F], Shape(4)]) -> Annotated[NDArray[F], Shape(1)]:
    return x.sum(1, keepdims=True)


class Model:
    """Counts its lives in the environment of its process."""

    alive = 0

    def setup(self) -> None:
        Model.alive += 1
        self.factor = 3

    def predict(self, x: NDArray[F]) -> NDArray[F]:
        return x * self.factor

    def teardown(self) -> None:
        Model.alive -= 1


def test_hints_make_an_endpoint_for_any_client(serve):
    server = serve(add)
    assert server.models == ["add"] and repr(server) == f"<tisfast server at {server.url}: add>"
    assert server.client()(X, X).tolist() == [0, 2, 4, 6]
    assert server.client(protocol="grpc")(a=X, b=X)["output"].tolist() == [0, 2, 4, 6]
    with httpclient.InferenceServerClient(server.http_address) as client:
        tensors = [httpclient.InferInput(name, [4], "FP32") for name in ("a", "b")]
        for tensor in tensors:
            tensor.set_data_from_numpy(X)
        assert client.infer("add", tensors).as_numpy("output").tolist() == [0, 2, 4, 6]
        assert client.get_model_metadata("add")["inputs"][1] == {"name": "b", "datatype": "FP32", "shape": [-1]}


def test_all_kinds_of_functions(serve):
    server = serve(scale, greet, ends, upper, later, count, count_later)
    assert server.client("scale")(2.5).tolist() == [5.0]
    assert server.client("scale")(2.5, 4.0).tolist() == [10.0]
    assert server.client("greet")("you").tolist() == [b"hello you "]
    assert server.client("greet")(name="you", times=2)["output"].tolist() == [b"hello you hello you "]
    found = server.client("ends")(np.arange(8, dtype=F).reshape(2, 4))
    assert found["low"].tolist() == [0, 4] and found["high"].tolist() == [3, 7]
    assert server.client("upper")(["a", "ü"]).tolist() == [b"A", "Ü".encode()]
    assert server.client("later")(X).tolist() == [1, 2, 3, 4]
    for name in ("count", "count_later"):
        answers = server.client(name, protocol="grpc").stream(3)
        assert [int(each["output"][0]) for each in answers] == [0, 1, 2], name


def test_inputs_are_views_and_may_be_kept(serve):
    kept = []

    def keep(x: NDArray[F]) -> NDArray[F]:
        kept.append(x)
        return x

    server = serve(keep)
    for at in range(3):
        server.client()(X + at)
    assert [each.tolist() for each in kept] == [(X + at).tolist() for at in range(3)]
    assert not any(each.flags.owndata for each in kept)


def test_batches_are_one_array_with_a_row_for_each_request(serve):
    sizes = []
    gate = threading.Event()

    def measured(x: Annotated[NDArray[F], Shape(4)]) -> Annotated[NDArray[F], Shape(1)]:
        sizes.append(len(x))
        assert gate.wait(SECONDS_MAX)
        return x.sum(1, keepdims=True)

    server = serve(measured, batch=8, delay=0.5)
    client = server.client()
    found = []
    threads = [threading.Thread(target=lambda at=at: found.append((at, client(X[None] + at)))) for at in range(5)]
    for thread in threads:
        thread.start()
    stats = lambda: server.statistics()[0]  # noqa: E731
    until(lambda: sizes, "the first batch is executed")
    gate.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert sorted((at, value.tolist()) for at, value in found) == [(at, [[6.0 + 4 * at]]) for at in range(5)]
    assert sum(sizes) == 5 and max(sizes) > 1 and stats()["execution_count"] == len(sizes)


def test_texts_make_batches_as_lists(serve):
    def lengths(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    server = serve(lengths, batch=True)
    assert server.client()(np.array([["a"], ["bcd"]], object)).tolist() == [[1], [3]]


def test_instances_execute_side_by_side(serve):
    both = threading.Barrier(2)

    def meet(x: NDArray[F]) -> NDArray[F]:
        both.wait(SECONDS_MAX)
        return x

    server = serve(meet, instances=2)
    client = server.client()
    threads = [threading.Thread(target=client, args=(X,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert both.n_waiting == 0 and not both.broken


def test_objects_of_a_class_are_set_up_and_torn_down(serve):
    before = Model.alive
    server = serve(Model, instances=2)
    assert Model.alive == before + 2
    assert server.client()(X).tolist() == [0, 3, 6, 9]
    server.add(Model, instances=1)
    assert Model.alive == before + 1
    server.stop()
    assert Model.alive == before


def test_an_object_with_predict_and_a_mapping_of_names(serve):
    model = Model()
    model.setup()
    server = serve({"three": model, "two": lambda x: x * 2}, sample=(X,))
    assert server.models == ["three", "two"]
    assert server.client("three")(X).tolist() == [0, 3, 6, 9] and server.client("two")(X).tolist() == [0, 2, 4, 6]
    model.teardown()


def raises(x: NDArray[F]) -> NDArray[F]:
    raise KeyError("no such thing")


def wrong_dtype(x: NDArray[F]) -> NDArray[F]:
    return x.astype(np.float64)


def wrong_shape(x: NDArray[F]) -> NDArray[F]:
    return x[None]


def wrong_number(x: NDArray[F]) -> tuple[NDArray[F], NDArray[F]]:
    return x, x, x


def no_tuple(x: NDArray[F]) -> tuple[NDArray[F], NDArray[F]]:
    return x


def wrong_names(x: NDArray[F]) -> Pair:
    return {"low": x, "height": x}


def wrong_text(x: NDArray[F]) -> str:
    return 3.5


def nothing(x: NDArray[F]) -> NDArray[F]:
    print("it forgets to return")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raises, "KeyError: 'no such thing'"),
        (wrong_dtype, "'wrong_dtype', output 'output': it returned float64 of shape [4], and float32 of shape [-1] is"),
        (wrong_shape, "'wrong_shape', output 'output': it returned float32 of shape [1, 4], and float32 of shape [-1]"),
        (wrong_number, "'wrong_number' returned 3 values, and it has 2 outputs: 'output_0', 'output_1'"),
        (no_tuple, "'no_tuple' returned one ndarray, and it has 2 outputs"),
        (wrong_names, "'wrong_names' returned 'low', 'height', and its outputs are 'low', 'high'"),
        (nothing, "'nothing', output 'output': it returned NoneType objects of shape []"),
        (wrong_text, "'wrong_text', output 'output': it returned float64 of shape []"),
    ],
)
def test_a_function_that_fails_is_told_with_both_values(serve, scratch, function, words):
    log = scratch / "log"
    server = serve(function, flags=[f"--log-file={log}"])
    for _ in range(2):
        with pytest.raises(Internal) as error:
            server.client()(X)
        assert words in str(error.value)
    server.stop()
    text = log.read_text()
    log.unlink()
    assert text.count(words.split("\n", maxsplit=1)[0]) == (4 if function is raises else 2)
    assert text.count('in raises\n        raise KeyError("no such thing")') == (2 if function is raises else 0)


def test_a_text_that_is_none_is_the_client_s_fault(serve):
    server = serve(greet)
    with pytest.raises(BadRequest, match="input 'name' has a text that is not UTF-8: byte 0xff at 1"):
        server.client()(name=np.array([b"a\xff"], object))


def test_a_batch_with_too_few_rows_is_told(serve):
    def fewer(x: Annotated[NDArray[F], Shape(4)]) -> NDArray[F]:
        return x[:1, :1]

    server = serve(fewer, batch=4)
    with pytest.raises(
        Internal, match=r"'fewer', output 'output': it returned float32 of shape \[1, 1\], and .* 3 rows"
    ):
        server.client()(np.ones((3, 4), F))


def test_serving_again_replaces_and_another_one_is_told(serve):
    port = closed_port()

    def cell(factor):
        def f(x: NDArray[F]) -> NDArray[F]:
            return x * factor

        return serve(f, http_port=port)

    first = cell(1)
    assert first.client()(X).tolist() == X.tolist()
    second = cell(5)
    assert second is first and second.client()(X).tolist() == (X * 5).tolist()
    with pytest.raises(BadRequest, match=rf"a server at port {port} already, with f: add\(function\) to that one"):
        serve(add, http_port=port)
    second.stop()
    assert serve(add, http_port=port).client()(X, X).tolist() == [0, 2, 4, 6]


def test_functions_come_and_go(serve):
    server = serve(add)
    server.add(scale).add(lambda x: x, name="same", sample=(X,))
    assert server.models == ["add", "same", "scale"]
    server.remove("add")
    assert server.models == ["same", "scale"]
    with pytest.raises(TisError):
        server.client("add")(X, X)
    with pytest.raises(BadRequest, match="'add' is not served; these are: same, scale"):
        server.remove("add")
    with pytest.raises(BadRequest, match="name one of what is served: same, scale"):
        server.client()
    with pytest.raises(BadRequest, match="protocol='gRPC' must be 'http' or 'grpc'"):
        server.client("same", protocol="gRPC")


def test_a_function_that_cannot_be_served_leaves_the_others(serve):
    server = serve(add)
    with pytest.raises(BadRequest, match="argument 'x'"):
        server.add(lambda x: x)
    with pytest.raises(BadRequest, match="neither callable nor has it a method predict"):
        server.add(3)
    with pytest.raises(BadRequest, match="a/b"):
        server.add(add, name="a/b")
    with pytest.raises(BadRequest, match="two functions have the name 'add'"):
        serve(add, add)
    assert server.models == ["add"] and server.client()(X, X).tolist() == [0, 2, 4, 6]


def test_a_notebook_sees_a_table(serve):
    server = serve(add, {"<b>": raises})
    server.client("add")(X, X)
    with pytest.raises(Internal):
        server.client("<b>")(X)
    page = server._repr_html_()
    assert f'<a href="{server.url}"' in page and "<td>a: FP32[-1], b: FP32[-1]</td>" in page
    assert page.count("<tr>") == 3 and "&lt;b&gt;" in page and "<b>" not in page
    assert "<td>1</td><td>0</td>" in page and "<td>1</td><td>1</td>" in page
    server.stop()
    assert server._repr_html_() == "<p>tisfast server, stopped</p>" and repr(server) == "<tisfast server, stopped>"


def test_wait_ends_with_the_server(serve):
    server = serve(add)
    assert server.wait(0) is False
    thread = threading.Thread(target=server.stop)
    thread.start()
    assert server.wait() is True
    thread.join()
    killed = serve(add)
    os.kill(killed._local.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="the server has ended"):
        killed.wait(SECONDS_MAX)


def test_idle_clients_do_not_hold_up_the_end(serve):
    server = serve(add)
    sockets = [socket.create_connection(server.http_address.split(":")) for _ in range(4)]
    client = server.client(protocol="grpc")
    client(X, X)
    server.stop()
    assert all(each.recv(1) == b"" for each in sockets)
    for each in sockets:
        each.close()


# ---- other processes


def pid_of(x: NDArray[F]) -> int:
    return os.getpid()


def test_processes_execute_copies_of_a_function(serve):
    server = serve(pid_of, processes=2)
    server.add(Model, name="model", processes=1)
    assert Model.alive == 0
    pids = {int(server.client("pid_of")(X)[0]) for _ in range(10)}
    assert os.getpid() not in pids and all(psutil.pid_exists(pid) for pid in pids)
    assert server.client("model")(X).tolist() == [0, 3, 6, 9]
    server.add(pid_of)
    assert server.client("pid_of")(X).tolist() == [os.getpid()]
    server.remove("model")
    assert server.models == ["pid_of"]
    server.stop()
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "its workers end with it")


def test_other_users_of_the_machine_load_nothing(serve):
    host, _, port = serve(add).http_address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
    connection.request("POST", "/v2/repository/models/add/load", b"{}")
    assert connection.getresponse().status == 401
    connection.close()


def test_what_cannot_leave_the_process_is_refused_with_a_sentence(serve, tmp_path):
    lock = threading.Lock()

    def locked(x: NDArray[F]) -> NDArray[F]:
        with lock:
            return x

    words = r"function 'locked' cannot leave this process: TypeError: cannot pickle '_thread.lock' object.*`setup`"
    server = serve(add)
    with pytest.raises(BadRequest, match=words):
        server.add(locked, processes=1)
    with pytest.raises(BadRequest, match=words):
        tisfast.export(locked, tmp_path)
    assert list(tmp_path.iterdir()) == [] and server.models == ["add"]


def test_without_cloudpickle_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(BadRequest, match=r"pip install cloudpickle, or tisfast\[export\]"):
        tisfast.export(add, tmp_path)


def test_an_environment_is_the_worker_s_python(serve, tmp_path):
    found = subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=False)
    if found.returncode:
        pytest.skip("this Python makes no virtual environments")
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))

    def where(x: NDArray[F]) -> str:
        return sys.prefix

    server = serve(where, environment=tmp_path / "env")
    assert server.client()(X).tolist() == [str(tmp_path / "env").encode()]
    with pytest.raises(BadRequest, match="environment='/nowhere/at/all' does not exist"):
        server.add(where, environment="/nowhere/at/all")


def test_exported_functions_give_the_same_answers(serve, tmp_path):
    for function in (add, scale, greet, ends, upper, later, count, count_later, Model):
        assert tisfast.export(function, tmp_path / "models") == tmp_path / "models" / function.__name__
    tisfast.export(totals, tmp_path / "models", batch=8, delay=0.001, name="sums", instances=2)
    tisfast.export(lambda x: x @ np.eye(4, dtype=F), tmp_path / "models", name="eye", sample=(np.ones((2, 4), F),))
    served = serve(add, scale, greet, ends, upper, later, count, count_later, Model).add(totals, name="sums", batch=8)
    served.add(lambda x: x @ np.eye(4, dtype=F), name="eye", sample=(np.ones((2, 4), F),))
    exported = serve(pid_of, flags=[f"--model-repository={tmp_path / 'models'}", "--load-model=*"])
    rows = np.arange(8, dtype=F).reshape(2, 4)
    questions = {
        "add": (X, X), "scale": (2.0,), "greet": ("you",), "upper": (["a", "b"],), "later": (X,), "Model": (X,),
        "sums": (rows,), "eye": (rows,),
    }  # fmt: skip
    for name, question in questions.items():
        ours, theirs = served.client(name)(*question), exported.client(name)(*question)
        assert ours.tolist() == theirs.tolist() and ours.dtype == theirs.dtype, name
    ours, theirs = served.client("ends")(rows), exported.client("ends")(rows)
    assert ours["low"].tolist() == theirs["low"].tolist() and ours["high"].tolist() == theirs["high"].tolist()
    for name in ("count", "count_later"):
        answers = exported.client(name, protocol="grpc").stream(3)
        assert [int(each["output"][0]) for each in answers] == [0, 1, 2], name
    done = subprocess.run(
        [sys.executable, "-m", "tisfast", "check", str(tmp_path / "models")],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def texts(n: int) -> list[bytes]:
    return [b"a\0", b"\0", b"b" * n]


def raw(n: int) -> bytes:
    return b"ab\0" * n


def too_large(n: int) -> NDArray[np.int8]:
    return [n, 1]


def test_texts_keep_their_zeros_and_numbers_that_do_not_fit_are_told(serve):
    server = serve(texts, raw, too_large)
    assert server.client("texts")(2).tolist() == [b"a\0", b"\0", b"bb"]
    assert server.client("raw")(2).tolist() == [b"ab\0ab\0"]
    assert server.client("too_large")(7).tolist() == [7, 1]
    with pytest.raises(TisError, match="'too_large'.* int64 of shape .2., and int8 .* 300 does not fit"):
        server.client("too_large")(300)


def test_export_replaces_what_it_wrote_and_nothing_else(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").write_text("1")
    for name in (".", "..", "a/b", ".hidden"):
        with pytest.raises(BadRequest, match="is no name of a model"):
            tisfast.export(add, tmp_path, name=name)
    with pytest.raises(BadRequest, match="data is there already and was not written by tisfast.export"):
        tisfast.export(add, tmp_path, name="data")
    with pytest.raises(BadRequest, match="kept is a file, and a model repository is a folder"):
        tisfast.export(add, tmp_path / "data/kept", name="add")
    for _ in range(2):
        tisfast.export(add, tmp_path, name="add")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["add", "data"]
    assert (tmp_path / "data/kept").read_text() == "1"


def test_an_exported_function_of_another_python_says_so(serve, tmp_path):
    folder = tisfast.export(add, tmp_path / "models")
    call = json.loads((folder / "1" / "function.json").read_text())
    (folder / "1" / "function.json").write_text(json.dumps({**call, "python": "3.7"}))
    with pytest.raises(Unavailable, match="exported by Python 3.7, and this model runs in Python 3"):
        serve(pid_of, flags=[f"--model-repository={tmp_path / 'models'}", "--load-model=*"])


SCRIPT = """
import signal, sys, threading, time
import numpy as np
from numpy.typing import NDArray
import tisfast

def add(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    return a + b

def hang(x: NDArray[np.float32]) -> NDArray[np.float32]:
    print("hangs", flush=True)
    threading.Event().wait()

def waits():
    \"\"\"The main thread is within what `wait` calls.\"\"\"
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame.f_back is not None and frame.f_back.f_code is not type(server).wait.__code__:
        frame = frame.f_back
    return frame.f_back is not None

def tell():
    while not waits():
        time.sleep(0.01)
    print(server.http_address, server._local.pid, flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
server = tisfast.serve(add, hang, http_port=0, grpc_port=None)
try:
    threading.Thread(target=tell, daemon=True).start()
    server.wait()
finally:
    print("over", server, flush=True)
"""


@pytest.fixture
def script(scratch):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def begin(address):
    """A request that nobody answers."""
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    connection.request("POST", "/v2/models/hang/infer", json.dumps({"inputs": [tensor]}))
    return connection


def test_ctrl_c_ends_a_script_and_its_server(script):
    address, pid = script.stdout.readline().split()
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=SECONDS_MAX)
    assert (script.returncode, out, err) == (0, "over <tisfast server, stopped>\n", "")
    until(lambda: not psutil.pid_exists(int(pid)), "the server has ended")


def test_a_program_that_is_killed_in_a_call_leaves_nothing(script):
    address, pid = script.stdout.readline().split()
    connection = begin(address)
    assert script.stdout.readline() == "hangs\n"
    script.kill()
    answer = connection.getresponse()
    assert answer.status == 503 and "try again" in json.loads(answer.read())["error"]
    connection.close()
    until(lambda: not psutil.pid_exists(int(pid)), "the server has ended")


def test_a_lone_tensor_says_it_too(serve):
    server = serve(np.add, name="plus", inputs=[Tensor("a"), Tensor("b")], outputs=[Tensor("sum")])
    assert server.client()(X, X).tolist() == [0, 2, 4, 6]
