"""One instance driven as the server drives it: what goes in and what comes out."""

from __future__ import annotations

import json
import struct

import pytest

from tests.workers.driver import BYTES, FP32, floats, record
from tests.workers.models import ANSWER, ERROR, FINAL, both, model

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
        "made another shape": (f"a = arr(r); a.shape = (2, {big // 2}); a.shape = -1; return [answer(a)]", 0),
        "strided in place": ("a = arr(r); a.strides = 0; return [answer(a)]", 1),
        "with parameters": ("return [answer(arr(r), parameters={'k': 1})]", 0),
        "fresh": ("return [answer(arr(r) + 0)]", 1),
    }
    values = [float(i) for i in range(big)]
    expected = {"view": values[big // 10 :], "small view": values[:4], "strided view": values[::2]}
    expected["strided in place"] = [0.0] * big
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


def test_a_task_that_execute_leaves_may_send_the_answer(serve):
    source = (
        model("self.task = asyncio.ensure_future(self.later(r, r.get_response_sender()))").replace(
            "    def execute", "    async def execute"
        )
        + """
    async def later(self, r, s):
        await asyncio.sleep(0)
        s.send(answer(arr(r)), 1)
"""
    )
    got = serve("import asyncio\n" + source).ask([7.0], [0])
    assert got.outputs and floats(got.outputs[0][4]) == [7.0], got.text
