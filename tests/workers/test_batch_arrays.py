"""Models with `execute_batch`: what they are given, and how what they return becomes answers."""

from __future__ import annotations

import json
import struct

import pytest

from tests.workers.batch_helpers import ONE, arrays, push, row
from tests.workers.driver import BYTES, FP32, floats, record
from tests.workers.models import ANSWER, ERROR, FINAL, HEAD, RELEASE, RETAINED, both

RAGGED = {"input": [{"name": "A", "allow_ragged_batch": True}]}


def answers(instance, count):
    """Floats of output 0 by ticket."""
    found = {}
    for _ in range(count):
        answer = instance.plane.next()
        assert answer.kind == ANSWER, answer.text
        found[answer.request] = floats(answer.outputs[0][4])
    return found


ROWS = [(float(n), *[0.0] * 15) for n in range(4)]  # of 64 bytes each: one behind the other


def test_requests_that_lie_at_one_distance_are_one_view(serve):
    instance = serve(arrays("return {'X': np.stack([a[:, 0], np.full(len(a), a.base is not None)], axis=1)}"), **ONE)
    tickets = push(instance, *[row(instance, *values) for values in ROWS])
    assert answers(instance, 4) == {ticket: [n, 1] for n, ticket in enumerate(tickets)}


def test_the_order_of_the_batch_is_not_that_of_the_memory(serve):
    instance = serve(arrays("return {'X': np.stack([a[:, 0], np.full(len(a), a.base is not None)], axis=1)}"), **ONE)
    places = [row(instance, *values) for values in ROWS]
    tickets = push(instance, *[places[n] for n in (2, 0, 3, 1)])
    assert answers(instance, 4) == dict(zip(tickets, [[2, 1], [0, 1], [3, 1], [1, 1]], strict=True))


def test_what_lies_otherwise_is_copied_together(serve):
    instance = serve(arrays("return {'X': np.stack([a[:, 0], np.full(len(a), a.base is not None)], axis=1)}"), **ONE)
    places = []
    for values in ROWS:
        places.append(row(instance, *values))
        instance.plane.room(64 * len(places))
    tickets = push(instance, *places)
    assert answers(instance, 4) == {ticket: [n, 0] for n, ticket in enumerate(tickets)}


def test_requests_of_several_rows(serve):
    instance = serve(arrays("return {'X': a + len(a)}"), **ONE)
    tickets = push(instance, row(instance, 1, 2), row(instance, 3, 4, 5, 6, batch=2), row(instance, 7, 8))
    assert answers(instance, 3) == dict(zip(tickets, [[5, 6], [7, 8, 9, 10], [11, 12]], strict=True))


def test_an_input_that_is_returned_stays_where_it_is(serve):
    instance = serve(arrays("a += 1; return {'X': i['A']}"), **ONE)
    push(instance, *[row(instance, *values) for values in ROWS])
    outputs = [instance.plane.next().outputs[0] for _ in range(4)]
    assert [(arena, floats(data)[0]) for _, _, _, arena, data in outputs] == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_what_a_model_writes_into_an_input_that_was_copied_together_is_the_answer(serve):
    instance = serve(arrays("a += 1; return {'X': i['A']}"), **ONE)
    places = []
    for values in ROWS:
        places.append(row(instance, *values))
        instance.plane.room(64 * len(places))
    tickets = push(instance, *places)
    found = answers(instance, 4)
    assert [found[ticket][0] for ticket in tickets] == [1, 2, 3, 4]


def test_tensors_of_no_elements_at_one_place(serve):
    instance = serve(arrays("return {'X': a}"), **ONE)
    place = instance.plane.place(b"")
    tickets = instance.plane.push([record([(0, FP32, (1, 0), place)]) for _ in range(3)])
    assert answers(instance, 3) == dict.fromkeys(tickets, [])


def test_rows_of_the_input_in_another_order_are_copied(serve):
    instance = serve(arrays("return {'X': a[::-1]}"), **ONE)
    tickets = push(instance, *[row(instance, *values) for values in ROWS])
    assert [values[0] for values in answers(instance, 4).values()] == [3, 2, 1, 0]
    assert tickets == [0, 1, 2, 3]


def test_all_requests_stay_while_the_model_keeps_a_view(serve):
    body = "self.kept.append(a[:1]) if a[0, 1] == 0 else self.kept.clear(); return {'X': a[:, :1] * 2}"
    instance = serve(arrays(body), **ONE)
    push(instance, *[row(instance, *values) for values in ROWS])
    assert [instance.plane.next().flags for _ in range(4)] == [FINAL | RETAINED] * 4
    push(instance, row(instance, 1, 1))
    found = [instance.plane.next() for _ in range(5)]
    assert sorted(answer.request for answer in found if answer.kind == RELEASE) == [0, 1, 2, 3]
    assert [answer.flags for answer in found if answer.kind == ANSWER] == [FINAL]


def test_outputs_that_nobody_asked_for_are_not_sent(serve):
    two = {**ONE, "outputs": [["X", FP32, [-1], None], ["Y", FP32, [-1], None]]}
    instance = serve(arrays("return {'X': a, 'Y': a * 2}"), **two)
    push(instance, row(instance, 1, 2), row(instance, 3, 4), requested=2)
    assert [[output[0] for output in instance.plane.next().outputs] for _ in range(2)] == [[1], [1]]


def test_bytes_tensors(serve):
    spec = {"max_batch_size": 4, "inputs": [["A", BYTES, [1], None]], "outputs": [["X", BYTES, [1], None]]}
    instance = serve(arrays("return {'X': np.array([[x[0] + b'!'] for x in a], dtype=object)}"), **spec)
    places = [instance.plane.place(struct.pack("<I", 2) + text) for text in (b"ab", b"cd")]
    instance.plane.push([record([(0, BYTES, (1, 1), place)]) for place in places])
    assert [instance.plane.next().outputs[0][4][4:] for _ in range(2)] == [b"ab!", b"cd!"]


def test_without_a_batch_dimension_arrays_are_the_requests_own(serve):
    instance = serve(arrays("return {'X': a * 2}"), **{**ONE, "max_batch_size": 0})
    assert floats(instance.ask([1, 2, 3]).outputs[0][4]) == [2, 4, 6]


@both
def test_a_coroutine_may_do_it(serve):
    more = "    async def execute_batch(self, i):\n        await asyncio.sleep(0)\n        return {'X': i['A'] * 2}"
    instance = serve(f"{HEAD}\nclass TritonPythonModel:\n{more}", **ONE)
    push(instance, row(instance, 1, 2), row(instance, 3, 4))
    assert answers(instance, 2) == {0: [2, 4], 1: [6, 8]}


def test_execute_is_for_servers_that_do_not_know_execute_batch(serve):
    instance = serve(arrays("return {'X': a * 2}", "    def execute(self, rs):\n        raise RuntimeError"), **ONE)
    push(instance, row(instance, 1, 2))
    assert answers(instance, 1) == {0: [2, 4]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [a]", "Expected a dict of output name and numpy array in the execute_batch return, found type"),
        ("return {'X': a[:1]}", "execute_batch returned output 'X' with shape [1,2], but the batch has 2 rows."),
        ("return {'X': np.float32(1)}", "output 'X' with shape [], but the batch has 2 rows."),
        ("return {'Z': a * 2}", "returned output 'Z', which its config does not have"),
        ("return {'X': a.astype('i4')}", "returned output 'X' with data type INT32"),
        ("return {'X': a.astype('c8')}", "NumPy dtype is not supported. Output 'X' has dtype <c8"),
        ("raise ValueError('no')", "message: ValueError: no"),
    ],
)
def test_what_goes_wrong_is_said_to_every_request(serve, body, said):
    instance = serve(arrays(body), **ONE, strict_outputs=True)
    push(instance, row(instance, 1, 2), row(instance, 3, 4))
    for _ in range(2):
        answer = instance.plane.next()
        assert answer.kind == ERROR and said in answer.text


KINDS = {
    "BATCH_ELEMENT_COUNT": [2, 3],
    "BATCH_ACCUMULATED_ELEMENT_COUNT": [2, 5],
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": [0, 2, 5],
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": [0, 0, 0],
    "BATCH_ITEM_SHAPE": [2, 3],
    "BATCH_ITEM_SHAPE_FLATTEN": [2, 3],
}


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_inputs_come_flat_with_what_tells_them_apart(serve, kind):
    made = {"kind": kind, "target_name": ["T"], "data_type": "TYPE_INT32", "source_input": ["A"]}
    scatter = {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["X"], "source_input": ["A"]}
    config = json.dumps({**RAGGED, "batch_input": [made], "batch_output": [scatter]})
    body = f"assert i['T'].dtype == 'i4' and i['T'].ravel().tolist() == {KINDS[kind]}, i['T']\nreturn {{'X': a * 10}}"
    instance = serve(arrays(body), **{**ONE, "config": config})
    push(instance, row(instance, 1, 2), row(instance, 3, 4, 5))
    assert answers(instance, 2) == {0: [10, 20], 1: [30, 40, 50]}


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (arrays("return {}"), {"decoupled": True}, "has execute_batch and no execute, but it is decoupled"),
        (
            f"{HEAD}\nclass TritonPythonModel:\n    def execute(self, rs): pass",
            {"config": json.dumps({"batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]})},
            "'batch_input' is about the arrays of execute_batch, and this model has no execute_batch",
        ),
    ],
)
def test_what_could_never_happen_is_refused_at_load(load, source, options, said):
    _, reply = load(source, **{**ONE, **options})
    assert reply["t"] == "failed" and said in reply["error"]
