"""One instance driven as the server drives it: results, errors, retained and passed inputs, limits."""

from __future__ import annotations

import json
import os
import signal
import struct

import pytest

from tests.workers.driver import BYTES, FP32, floats, record

HEAD = """
import numpy as np, os, sys, gc, asyncio
import triton_python_backend_utils as pb_utils
def arr(r, name="A"):
    return pb_utils.get_input_tensor_by_name(r, name).as_numpy()
def answer(array, name="X", **options):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)], **options)
"""


def model(body: str, more: str = "") -> str:
    """A model whose execute is `body` (r: the first request; rs: all)."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    execute = f"    def execute(self, rs):\n        r = rs[0]\n{lines}"
    return f"{HEAD}\nclass TritonPythonModel:\n    kept = []\n{more}\n{execute}"


# The runtime's numpy side under the oldest interpreter as well; what does not touch arrays is in test_nursery.py.
both = pytest.mark.parametrize("nursery", ["this", "oldest"], indirect=True)
FINAL, RETAINED, ANSWER, ERROR, RELEASE = 1, 2, 2, 3, 4


# ---- inputs


def test_what_a_request_tells(serve):
    told = (
        "[r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(), "
        "sorted(r.requested_output_names()), r.is_cancelled(), [t.name() for t in r.inputs()], "
        "[t.shape() for t in r.inputs()], r.inputs()[0].triton_dtype()]"
    )
    instance = serve(
        model(f"import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps({told})))]")
    )
    bare = json.loads(instance.ask([1], [2]).text)
    assert bare == ["", 0, 0, 0, "{}", ["X", "Y"], False, ["A", "B"], [[1], [1]], 11]
    full = instance.ask(
        [1, 2], [2, 3], id="é1", correlation="seq", flags=3, timeout=7, parameters='{"k": 1}', requested=2
    )
    assert json.loads(full.text)[:6] == ["é1", "seq", 3, 7, '{"k": 1}', ["Y"]]
    assert json.loads(instance.ask([1], [2], correlation=2**63).text)[1] == 2**63


@both
def test_arrays_are_writable_views_and_the_same_at_every_call(serve):
    instance = serve(model("a = arr(r); a += 1; return [answer(np.array([a is arr(r), a[0] == arr(r)[0]], 'f4'))]"))
    assert floats(instance.ask([1, 2], [0, 0]).outputs[0][4]) == [1, 1]


@both
def test_bytes_tensors_come_and_go(serve):
    spec = {"inputs": [["A", BYTES, [-1], None]], "outputs": [["X", BYTES, [-1], None]]}
    instance = serve(model("return [answer(np.array([x[::-1] for x in arr(r)] + ['é'], dtype=object))]"), **spec)
    raw = b"\2\0\0\0ab\0\0\0\0\1\0\0\0\xff"
    instance.plane.push([record([(0, BYTES, (3,), instance.plane.place(raw))])])
    index, dtype, shape, arena, data = instance.plane.next().outputs[0]
    assert (index, dtype, shape, arena) == (0, BYTES, (4,), 1)
    assert data == b"\2\0\0\0ba\0\0\0\0\1\0\0\0\xff\2\0\0\0\xc3\xa9"
    instance.plane.push([record([(0, BYTES, (4,), instance.plane.place(raw))])])
    assert "holds 3 whole elements in 15 bytes; its shape says 4" in instance.plane.next().text


@both
def test_bf16_goes_through_dlpack_only(serve):
    spec = {"inputs": [["A", 14, [-1], None]], "outputs": [["X", 14, [-1], None]]}
    body = "return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('X', r.inputs()[0].to_dlpack())])]"
    instance = serve(model(body), **spec)
    instance.plane.push([record([(0, 14, (3,), instance.plane.place(b"abcdef"))])])
    assert instance.plane.next().outputs == [(0, 14, (3,), 1, b"abcdef")]


def test_reshapes_are_undone_on_the_way_out(serve):
    spec = {
        "inputs": [["A", FP32, [4, -1], [2, -1, 2]]],
        "outputs": [["X", FP32, [4, -1], [2, 2, -1]]],
        "max_batch_size": 8,
    }
    instance = serve(
        model("assert arr(r).shape == (3, 2, 1, 2), arr(r).shape; return [answer(arr(r).transpose(0, 1, 3, 2))]"),
        **spec,
    )
    answer = instance.ask([0] * 12, shape=(3, 4, 1), batch=3)
    assert answer.outputs[0][2] == (3, 4, 1), answer.text


@pytest.mark.parametrize("lie", ["size", "inputs", "type"])
def test_a_record_that_lies_is_refused_alone(serve, lie):
    instance = serve(model("return [answer(arr(r)) for r in rs]"))
    where = instance.plane.place(bytes(8))
    good = record([(0, FP32, (2,), where)])
    bad = {
        "size": record([(0, FP32, (3,), where)]),
        "inputs": good[:4] + b"\2" + good[5:],
        "type": record([(0, BYTES, (2,), where)]),
    }[lie]
    tickets = instance.plane.push([bad])
    answer = instance.plane.next()
    assert (answer.kind, answer.status, answer.request, answer.batch) == (ERROR, 2, tickets[0], 0)
    instance.plane.push([good])
    assert instance.plane.next().kind == ANSWER


# ---- batches and answers


def test_a_batch_is_one_execution(serve):
    instance = serve(model("return [answer(arr(q) * len(rs)) for q in rs]"))
    tickets = instance.plane.push([instance.record([i], [0]) for i in range(5)])
    answers = [instance.plane.next() for _ in tickets]
    assert [a.request for a in answers] == tickets and [a.batch for a in answers] == [5, 0, 0, 0, 0]
    assert [floats(a.outputs[0][4]) for a in answers] == [[5 * i] for i in range(5)]
    assert len({a.times for a in answers}) == 1


def test_thousands_of_requests_reuse_the_same_blocks(serve):
    instance = serve(model("return [answer(arr(q) + 1) for q in rs]"))
    data = instance.record([1] * 100, [0])
    blocks = set()
    for _ in range(3000):
        instance.plane.at = 512
        instance.plane.push([data])
        answer = instance.plane.next()
        blocks.add(answer.block & ((1 << 40) - 1))
        instance.plane.give_back(answer.block)
    assert len(blocks) < 64


def test_outputs_not_asked_for_are_dropped(serve):
    instance = serve(
        model("return [pb_utils.InferenceResponse([pb_utils.Tensor('X', arr(r)), pb_utils.Tensor('Y', arr(r) + 1)])]")
    )
    assert [o[0] for o in instance.ask([1], [1], requested=2).outputs] == [1]
    assert instance.ask([1], [1], requested=0).outputs == []
    assert [o[0] for o in instance.ask([1], [1]).outputs] == [0, 1]


@both
def test_inputs_returned_unchanged_are_passed_by_reference(serve):
    big = 20000
    bodies = {
        "same": ("return [answer(arr(r))]", 0),
        "tensor": ("t = r.inputs()[0]; return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('X', t)])]", 1),
        "view": (f"return [answer(arr(r)[{big // 10}:])]", 0),
        "small view": ("return [answer(arr(r)[:4])]", 1),
        "strided view": ("return [answer(arr(r)[::2])]", 1),
        "fresh": ("return [answer(arr(r) + 0)]", 1),
    }
    values = [float(i) for i in range(big)]
    expected = {"view": values[big // 10 :], "small view": values[:4], "strided view": values[::2]}
    for name, (body, arena) in bodies.items():
        answer = serve(model(body)).ask(values, [0])
        assert (name, answer.outputs[0][3]) == (name, arena)
        assert floats(answer.outputs[0][4]) == expected.get(name, values)
        assert answer.flags == FINAL


def test_an_input_tensor_returned_under_its_own_name(serve):
    spec = {"inputs": [["A", FP32, [-1], None]], "outputs": [["A", FP32, [-1], None]]}
    instance = serve(model("return [pb_utils.InferenceResponse(r.inputs())]"), **spec)
    assert instance.ask([1, 2]).outputs == [(0, FP32, (2,), 0, struct.pack("2f", 1, 2))]


def test_another_requests_input_is_copied(serve):
    instance = serve(model("return [answer(arr(rs[1])), answer(arr(rs[0]))]"))
    instance.plane.push([instance.record([1], [0]), instance.record([2], [0])])
    answers = [instance.plane.next() for _ in range(2)]
    assert [(a.outputs[0][3], floats(a.outputs[0][4])) for a in answers] == [(1, [2]), (1, [1])]


@pytest.mark.parametrize(
    ("array", "data"),
    [
        ("np.arange(6, dtype='f4').reshape(2, 3).T.reshape(-1, order='A')[::2]", None),
        ("np.zeros(0, 'f4')", b""),
        ("np.arange(100000, dtype='f4')[::-1]", None),
    ],
)
def test_odd_arrays(serve, array, data):
    import numpy as np

    expected = eval(array, {"np": np}).tobytes() if data is None else data
    assert serve(model(f"return [answer({array})]")).ask([1], [2]).outputs[0][4] == expected


def test_response_parameters(serve):
    answer = serve(model("return [answer(arr(r), parameters={'k': True, 'n': 3})]")).ask([1], [2])
    assert json.loads(answer.parameters) == {"k": True, "n": 3} and floats(answer.outputs[0][4]) == [1]


# ---- what a model does wrong


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("answer(arr(r), 'NOPE')", "model 'm' returned output 'NOPE', which its config does not have; it has 'X', 'Y'"),
        ("answer(arr(r).astype('f8'))", "model 'm' returned output 'X' with data type FP64, its config says FP32"),
        ("answer(np.zeros((2, 2), 'f4'))", "unexpected shape for output 'X' for model 'm'. Expected [-1], got [2,2]"),
        (
            "pb_utils.InferenceResponse([pb_utils.Tensor('X', arr(r))] * 2)",
            "model 'm' returned output 'X' twice in one response",
        ),
    ],
)
def test_outputs_that_the_config_does_not_have(serve, response, text):
    instance = serve(model(f"return [{response}, answer(arr(rs[1]) + 1)]"))
    instance.plane.push([instance.record([1], [0]), instance.record([2], [0])])
    bad, good = instance.plane.next(), instance.plane.next()
    assert (bad.kind, bad.status, bad.text) == (ERROR, 2, text)
    assert floats(good.outputs[0][4]) == [3]


def test_what_cannot_be_encoded_is_that_requests_error(serve):
    more = """
    class Bad:
        def __str__(self): raise ValueError("no text")
    class Raw(pb_utils.InferenceResponse):
        def __init__(self): pass
"""
    body = "bad = {'text': lambda: answer(np.array([self.Bad()], dtype=object)), 'raw': self.Raw}"
    instance = serve(model(body + "; return [bad[r.request_id()]()]", more), outputs=[["X", BYTES, [-1], None]])
    for name, error in (("text", "ValueError: no text"), ("raw", "AttributeError: ")):
        text = instance.ask([1], [2], id=name).text
        assert text.startswith(f"a response of model 'm' cannot be encoded: {error}")


def test_a_list_of_tensors_may_be_used_again(serve):
    body = """
outs, answers = [], []
for q in rs:
    outs.clear()
    outs.append(pb_utils.Tensor("X", arr(q) + 1))
    answers.append(pb_utils.InferenceResponse(outs))
return answers
"""
    instance = serve(model(body))
    instance.plane.push([instance.record([i], [0]) for i in range(3)])
    assert [floats(instance.plane.next().outputs[0][4]) for _ in range(3)] == [[1], [2], [3]]


def test_the_batch_dimension_is_checked(serve):
    instance = serve(
        model("return [answer(np.zeros((3, 4), 'f4'))]"), outputs=[["X", FP32, [4], None]], max_batch_size=8
    )
    text = instance.ask([0] * 8, shape=(2, 4), batch=2).text
    assert (
        text == "unexpected shape for output 'X' for model 'm'. Expected [2,4], got [3,4]: the first dimension is the "
        "request's batch"
    )


def test_an_error_for_one_request(serve):
    instance = serve(
        model(
            "return [pb_utils.InferenceResponse([], error=pb_utils.TritonError('no such é', "
            "pb_utils.TritonError.NOT_FOUND)), answer(arr(rs[1]))]"
        )
    )
    instance.plane.push([instance.record([1], [0]), instance.record([2], [0])])
    bad, good = instance.plane.next(), instance.plane.next()
    assert (bad.kind, bad.status, bad.text) == (ERROR, 3, "no such é") and good.kind == ANSWER


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("return None", "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        (
            "return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "return [3]",
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'.",
        ),
        ("raise TypeError('bad')", "TypeError: bad\n\nAt:\n  MODEL(14): execute\n"),
        ("raise ValueError()", "ValueError: <EMPTY MESSAGE>\n\nAt:\n  MODEL(14): execute\n"),
        ("raise KeyError('x')", "KeyError: 'x'\n\nAt:\n  MODEL(14): execute\n"),
        ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine\n\nAt:\n  MODEL(14): execute\n"),
        ("raise SystemExit(3)", "SystemExit: 3\n\nAt:\n  MODEL(14): execute\n"),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n  MODEL(14): execute\n"),
        (
            "def f():\n    raise ValueError('deep\\nline')\nf()",
            "ValueError: deep\nline\n\nAt:\n  MODEL(15): f\n  MODEL(16): execute\n",
        ),
        ("pb_utils.Tensor('', arr(r))", "TritonModelException: Tensor name cannot be an empty string."),
    ],
)
def test_failed_executions_are_told_in_tritons_words(serve, router, body, message):
    """Each text was asked of the real Triton 2.51, but for None (which it waits for) and the last."""
    instance = serve(model(body))
    text = instance.ask([1], [2], id="r7").text
    start = "Failed to process the request(s) for model 'm_0_0', message: "
    wanted = message.replace("MODEL", os.path.join(instance.load["version_dir"], "model.py"))
    assert text.startswith(start + wanted) and (text == start + wanted or not message.endswith(("\n", "'.")))
    trace = router.receive()
    assert (trace["t"], trace["requests"]) == ("trace", ["r7"])
    assert trace["error"].startswith(message.split("\n\nAt")[0])
    instance.plane.push([instance.record([1], [2])])
    assert instance.plane.next().status == 2, "it serves on"


def test_a_model_without_execute(serve):
    text = serve("class TritonPythonModel:\n    pass\n").ask([1], [2]).text
    assert "message: Python model " in text and text.endswith("1/model.py does not implement `execute` method.")


def test_the_traceback_begins_with_the_models_own_frame(serve, router):
    serve(model("raise ValueError('why')")).ask([1], [2])
    lines = router.receive()["traceback"].splitlines()
    assert (
        lines[0] == "Traceback (most recent call last):" and "model.py" in lines[1] and lines[-1] == "ValueError: why"
    )


def test_exit_in_a_model_is_a_death_with_its_status(serve):
    instance = serve(model("os._exit(7)"))
    instance.plane.push([instance.record([1], [2])])
    assert os.WEXITSTATUS(instance.exit_status()) == 7


# ---- asynchronous models


@both
def test_an_asynchronous_execute_is_run_to_completion(serve):
    source = (
        model("pass").replace("    def execute(self, rs):\n        r = rs[0]\n        pass\n", "")
        + """
    async def execute(self, rs):
        async def one(r):
            await asyncio.sleep(0)
            loops.add(id(asyncio.get_running_loop()))
            return answer(arr(r) * len(loops))
        return await asyncio.gather(*(one(r) for r in rs))
loops = set()
"""
    )
    instance = serve(source)
    for i in range(3):
        answer = instance.ask([i], [0])
        assert (floats(answer.outputs[0][4]), answer.flags) == ([i], FINAL), answer.text


def test_an_asynchronous_execute_that_raises(serve):
    source = (
        model("pass").replace("    def execute(self, rs):\n        r = rs[0]\n        pass\n", "")
        + """
    async def execute(self, rs):
        await asyncio.sleep(0)
        raise ValueError("later")
"""
    )
    instance = serve(source)
    text = instance.ask([1], [0]).text
    assert text.endswith(f"message: ValueError: later\n\nAt:\n  {instance.load['version_dir']}/model.py(15): execute\n")


# ---- retained inputs


@both
@pytest.mark.parametrize(
    "keep",
    [
        "r",
        "rs",
        "r.inputs()[0]",
        "arr(r)",
        "arr(r)[1:]",
        "arr(r).reshape(1, -1)",
        "memoryview(arr(r))",
        "r.inputs()[0].to_dlpack()",
        "iter([rs])",
    ],
)
def test_an_input_that_the_model_keeps_is_retained_until_it_lets_go(serve, keep):
    instance = serve(model(f"self.kept[:] = [{keep}] if r.request_id() == 'keep' else []; return [answer(arr(r) + 1)]"))
    assert instance.ask([1, 2], [0]).flags == FINAL
    kept = instance.ask([1, 2], [0], id="keep")
    assert kept.flags == FINAL | RETAINED
    instance.plane.push([instance.record([3, 4], [0])])
    both = sorted((instance.plane.next() for _ in range(2)), key=lambda a: a.kind)
    assert [a.kind for a in both] == [ANSWER, RELEASE] and both[1].request == kept.request and both[0].flags == FINAL


def test_a_release_from_another_thread_does_not_wait_for_a_request(serve):
    body = """
import threading
go = threading.Event()
kept = [arr(r)]
def later():
    go.wait()
    kept.clear()
threading.Thread(target=later, daemon=True).start()
threading.Timer(0.05, go.set).start()
return [answer(arr(r) + 1)]
"""
    instance = serve(model(body))
    kept = instance.ask([1], [0])
    release = instance.plane.next()
    assert kept.flags == FINAL | RETAINED and (release.kind, release.request) == (RELEASE, kept.request)


@both
@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError(rs)",
        "return [3]",
        "return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(arr(r))))]",
        "return [answer(arr(r))]",
        "[q for q in rs]; return [answer(arr(q)) for q in rs]",
    ],
)
def test_nothing_is_retained_by_us(serve, body):
    instance = serve(model(body))
    for _ in range(3):
        assert instance.ask([1, 2], [0]).flags == FINAL


# ---- memory


@both
def test_a_full_output_arena_waits_for_blocks_to_come_back(serve):
    instance = serve(model("return [answer(np.zeros(30000, 'f4')) for r in rs]"), output_bytes=1 << 20)
    count = 8  # 8 answers of 120 KB; 4 fit
    tickets = instance.plane.push([instance.record([1], [0]) for _ in range(count)])
    got = []
    while len(got) < count:
        answer = instance.plane.next()
        if answer.kind == RELEASE:
            continue
        assert len(answer.outputs[0][4]) == 120000
        got.append(answer.request)
        instance.plane.give_back(answer.block)
    assert got == tickets


def test_an_answer_larger_than_the_arena_says_so(serve):
    instance = serve(model("return [answer(np.zeros(300000, 'f4'))]"), output_bytes=1 << 20)
    answer = instance.ask([1], [0])
    assert answer.status == 5
    assert answer.text == "an answer of 1200064 bytes does not fit the output arena of 524288 bytes"


# ---- life


def test_initialize_gets_its_arguments_and_finalize_runs(serve, router):
    more = """
    def initialize(self, args):
        self.args = args
    def finalize(self):
        print("finalized")
        raise ValueError("late")
"""
    instance = serve(
        model(
            "import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(self.args)))]",
            more,
        )
    )
    args = json.loads(instance.ask([1], [2]).text)
    assert args == {
        "model_config": instance.load["config"],
        "model_instance_kind": "CPU",
        "model_instance_name": "m_0_0",
        "model_instance_device_id": "0",
        "model_repository": instance.load["repository"],
        "model_version": "1",
        "model_name": "m",
    }
    instance.stop()
    logged = router.receive()
    assert logged["level"] == "ERROR" and "ValueError: late" in logged["msg"]
    assert router.receive() == {"t": "stopped"} and instance.exit_status() == 0 and instance.printed() == "finalized\n"


def test_stop_finishes_what_submit_holds(serve, router):
    instance = serve(model("import time; time.sleep(0.05); return [answer(arr(r))]"))
    for _ in range(4):
        instance.plane.push([instance.record([1], [0])])
    instance.stop()
    assert [instance.plane.next().kind for _ in range(4)] == [ANSWER] * 4
    assert router.until("stopped")


@both
@pytest.mark.parametrize(
    ("source", "kind", "error", "message"),
    [
        (
            "import nosuchmodule\n",
            "import",
            "ModuleNotFoundError: No module named 'nosuchmodule'",
            "\n\nAt:\n  MODEL(1): <module>\n",
        ),
        ("class TritonPythonModel\n", "import", "SyntaxError: ", ""),
        ("x = 1\n", "import", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'", ""),
        ("import sys; sys.exit(3)\n", "import", "SystemExit: 3", "\n\nAt:\n  MODEL(1): <module>\n"),
        (
            model("pass", "    def initialize(self, args): raise ValueError('no weights')\n"),
            "init",
            "ValueError: no weights",
            "\n\nAt:\n  MODEL(11): initialize\n",
        ),
        (
            model("pass", "    def __init__(self): raise ValueError('ctor')\n"),
            "init",
            "ValueError: ctor",
            "\n\nAt:\n  MODEL(11): __init__\n",
        ),
    ],
)
def test_failures_to_load(load, source, kind, error, message):
    instance, reply = load(source)
    assert (reply["t"], reply["kind"]) == ("failed", kind) and reply["error"].startswith(error)
    path = os.path.join(instance.load["version_dir"], "model.py")
    assert reply["message"] == reply["error"] + message.replace("MODEL", path)
    assert os.WEXITSTATUS(instance.exit_status()) == 1


def test_auto_complete(load):
    more = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [4]})
        return config
    def initialize(self, args):
        raise ValueError("not for completing")
"""
    instance, reply = load(model("pass", more), "complete")
    assert reply["t"] == "completed" and json.loads(reply["config"])["input"][0]["name"] == "A"
    assert instance.exit_status() == 0
    assert json.loads(load(model("pass"), "complete")[1]["config"])["name"] == "m"
    _, reply = load(model("pass", "    @staticmethod\n    def auto_complete_config(c): pass\n"), "complete")
    assert reply["kind"] == "complete"
    assert reply["error"].endswith(
        "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    )


def test_the_model_sees_its_folders_and_its_siblings(serve, tmp_path):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/sibling.py").write_text("where = 'version'\n")
    (tmp_path / "m/backends.py").write_text("where = 'model'\n")
    body = """
import sibling, backends
from . import sibling as relative
said = [__name__, sibling.where, backends.where, relative.where, sys.path[-3:], pb_utils.get_model_dir()]
import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(said)))]
"""
    instance = serve(model(body))
    name, sibling, backends, relative, path, folder = json.loads(instance.ask([1], [2]).text)
    assert (name, sibling, backends, relative) == ("1.model", "version", "model", "version")
    assert path[:2] == [instance.load["version_dir"], instance.load["repository"]] and path[2].endswith("workers")
    assert folder == instance.load["version_dir"]


@both
def test_variables_threads_and_random_numbers_are_the_instances_own(serve):
    body = """
said = [os.environ.get(n) for n in ("OMP_NUM_THREADS", "MODEL_VARIABLE", "MKL_NUM_THREADS")] + [np.random.random()]
import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(said)))]
"""
    env = {"MODEL_VARIABLE": "1", "MKL_NUM_THREADS": "7"}
    first, second = (json.loads(serve(model(body), env=env, threads=3).ask([1], [2]).text) for _ in range(2))
    assert first[:3] == second[:3] == ["3", "1", "7"]
    assert first[3] != second[3]


def test_control_goes_on_while_the_model_works(serve, router):
    instance = serve(model("pb_utils.Logger.log_info('busy'); import time; time.sleep(0.3); return [answer(arr(r))]"))
    instance.plane.push([instance.record([1], [0])])
    logged = router.receive()
    assert (logged["level"], logged["msg"], logged["file"]) == ("INFO", "busy", "model.py") and logged["line"] == 14
    router.send(instance.id, {"t": "ping", "n": 5})
    assert router.receive() == {"t": "pong", "n": 5}
    assert instance.plane.next().kind == ANSWER


def test_verbose_records_are_for_verbose_servers(serve, router):
    body = "pb_utils.Logger.log_verbose('small'); pb_utils.Logger.log_error('large'); return [answer(arr(r))]"
    serve(model(body)).ask([1], [0])
    assert router.receive()["msg"] == "large"
    serve(model(body), log_verbose=1).ask([1], [0])
    assert router.receive()["level"] == "VERBOSE"


def test_a_flood_of_log_records_never_blocks(serve, router):
    instance = serve(model("[pb_utils.Logger.log_info('x' * 1000) for _ in range(20000)]; return [answer(arr(r))]"))
    assert instance.ask([1], [0]).kind == ANSWER  # nobody has read the control socket yet
    received, dropped = 0, 0
    while received + dropped < 20000:
        message = router.receive()
        if "were dropped" in message["msg"]:
            dropped += int(message["msg"].split()[0])
        else:
            received += 1
    assert received + dropped == 20000


def test_what_a_model_prints_comes_out_in_whole_lines(serve, router):
    instance = serve(
        model("print('é', arr(r)); print('to err', file=sys.stderr); os.write(1, b'raw\\n'); return [answer(arr(r))]")
    )
    instance.ask([1], [0])
    instance.stop()
    instance.exit_status()
    assert instance.printed() == "é [1.]\nto err\nraw\n"


def test_a_signal_ends_an_instance_at_once(serve):
    instance = serve(model("import time; time.sleep(60)"))
    instance.plane.push([instance.record([1], [0])])
    os.kill(instance.pid, signal.SIGTERM)
    assert os.WTERMSIG(instance.exit_status()) == signal.SIGTERM


@pytest.mark.parametrize(
    "message",
    [{"t": "nonsense"}, {"t": "load", "role": "serve", "model": {"name": "m"}}, {"t": "load", "role": "other"}],
)
def test_a_broken_load_message_ends_the_worker_with_a_reason(load, router, nursery, tmp_path, message):
    from tests.workers.driver import Instance

    instance = Instance(nursery, router, tmp_path, "")
    router.send(instance.id, message)
    assert os.WEXITSTATUS(instance.exit_status()) == 1
    assert "WireError" in instance.printed()
