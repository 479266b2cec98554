"""Models that call other models, in a worker: records, answers, threads, coroutines, memory, and what is refused."""

from __future__ import annotations

import ctypes
import struct
import textwrap

import pytest

from tests.workers.driver import BYTES, FP32, Instance, Plane, Shared, floats
from tests.workers.models import ANSWER, ERROR, FINAL, HEAD, both, model

CALL, CALL_CANCEL, CALL_DONE = 7, 8, 9
REPLY_RING, NOBODY = 704, (1 << 64) - 1
ANY_NUMBER, WAITS = 8, 16
LARGE = 40000  # floats: beyond what is copied
ASK = """
import threading
def ask(*arrays, decoupled=False, **options):
    options = {"model_name": "other", "requested_output_names": [], **options}
    inputs = [pb_utils.Tensor(n, a) for n, a in zip(["I", "J"], arrays)]
    return pb_utils.InferenceRequest(inputs=inputs, **options)
def out(response):
    if response.has_error():
        raise ValueError(f"{response.error().code().name}: {response.error().message()}")
    return response.output_tensors()[0].as_numpy()
"""


def asking(body: str, more: str = "") -> str:
    """A model whose execute is `body`; more: module-level code."""
    return ASK + more + model(body)


class Call:
    """A call record, read as WIRE.md says."""

    def __init__(self, plane: Plane, number: int, block: int) -> None:
        self.plane, self.number, self.block = plane, number, block
        at = (block & ((1 << 40) - 1)) * 512
        memory = plane.outputs.memory
        head = struct.unpack_from("<IHHQQQQIIII", memory, at)
        signature_bytes, count, self.flags, self.timeout, self.correlation, self.parent, self.trace = head[:7]
        signature = memory[at + 56 : at + 56 + signature_bytes]
        name_bytes, requested, _, self.version = struct.unpack_from("<HHIq", signature)
        place = 16 + name_bytes
        self.model, self.requested = signature[16:place].decode(), []
        for _ in range(requested):
            (length,) = struct.unpack_from("<H", signature, place)
            self.requested.append(signature[place + 2 : place + 2 + length].decode())
            place += 2 + length
        place += -place % 8
        self.inputs, self.places = [], []
        for i in range(count):
            dtype, rank, length, _ = struct.unpack_from("<BBHI", signature, place)
            shape = struct.unpack_from(f"<{rank}q", signature, place + 8)
            place += 8 + 8 * rank
            name = signature[place : place + length].decode()
            place += length + -length % 8
            source, owner, offset, nbytes = struct.unpack_from("<QQQQ", memory, at + 56 + signature_bytes + 32 * i)
            data = (plane.inputs.memory, memory, b"")[source][offset : offset + nbytes]
            self.inputs.append((name, dtype, shape, data))
            self.places.append((source, owner, offset, nbytes))
        at += 56 + signature_bytes + 32 * count
        texts = []
        for length in head[7:10]:
            texts.append(memory[at : at + length].decode())
            at += length
        self.id, self.parameters, text = texts
        self.correlation = text if self.flags & 4 else self.correlation

    def reply(self, outputs: list, *, final: bool = True, answer: int = 1, parameters: bytes = b"") -> None:
        """outputs: name, data type, shape, bytes or (place, bytes) of each."""
        signature = b"".join(
            struct.pack(f"<BBHI{len(shape)}q", dtype, len(shape), len(name), 0, *shape)
            + name.encode() + bytes(-len(name) % 8)
            for name, dtype, shape, _ in outputs
        )  # fmt: skip
        places = b"".join(
            struct.pack("<QQ", *(data if isinstance(data, tuple) else self.plane.place(data))) for *_, data in outputs
        )
        head = struct.pack("<IHHII", len(signature), len(outputs), 0, len(parameters), 0)
        at, nbytes = self.plane.place(head + signature + places + parameters)
        self._put(ANSWER, final, 0, nbytes, at, answer)

    def fail(self, status: int, text: str, *, final: bool = True, answer: int = 1) -> None:
        at, nbytes = self.plane.place(text.encode())
        self._put(ERROR, final, status, nbytes, at, answer)

    def end(self) -> None:
        self._put(ANSWER, True, 0, 0, 0, 0)

    def _put(self, kind: int, final: bool, status: int, nbytes: int, at: int, answer: int) -> None:
        plane = self.plane
        slot = plane.lib.tf_ring_reserve(plane.channel.base, plane.channel.base + REPLY_RING, 0)
        fields = (kind, FINAL if final else 0, status, nbytes, self.number, at, answer, plane.told)
        struct.pack_into("<BBHIQQQI", plane.channel.memory, slot - plane.channel.base, *fields)
        plane.lib.tf_ring_publish(plane.channel.base + REPLY_RING, 1)
        plane.lib.tf_reply_wake(plane.channel.base)


def slot_of(instance: Instance, kind: int):
    """The next slot of this kind; others that come before it wait for whoever asks for them."""
    early = instance.__dict__.setdefault("early", [])
    for slot in early:
        if slot.kind == kind:
            early.remove(slot)
            return slot
    while (slot := instance.plane.next()).kind != kind:
        assert slot.kind != ERROR, slot.text
        early.append(slot)
    return slot


def call_of(instance: Instance) -> Call:
    slot = slot_of(instance, CALL)
    return Call(instance.plane, slot.request, slot.block)


def raw(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@pytest.fixture
def calling(serve):
    """Start a model; the instance, whose prototypes of the library know of replies."""

    def start(body: str, more: str = "", source: str = "", **options: object) -> Instance:
        instance = serve(source or asking(body, more), **options)
        instance.plane.lib.tf_reply_wake.argtypes = [ctypes.c_size_t]
        return instance

    return start


@both
def test_a_call_and_its_answer(calling):
    body = """
q = ask(arr(r), np.array(["x", b"yz"], object), requested_output_names=["O"], request_id="rid", correlation_id=7,
        flags=1, timeout=5, parameters={"a": 1}, model_version=3)
x = q.exec()
return [answer(out(x) + len(x.parameters()), parameters={"p": x.parameters()})]
"""
    instance = calling(body)
    (ticket,) = instance.plane.push([instance.record([1, 2], [0])])
    call = call_of(instance)
    assert (call.model, call.version, call.requested, call.id, call.correlation, call.timeout, call.parameters) == (
        "other", 3, ["O"], "rid", 7, 5, '{"a":1}',
    )  # fmt: skip
    assert call.flags == 1 | WAITS and call.parent == ticket and call.trace == NOBODY
    assert call.inputs == [
        ("I", FP32, (2,), raw(1, 2)),
        ("J", BYTES, (2,), b"\x01\0\0\0x\x02\0\0\0yz"),
    ]
    call.reply([("O", FP32, (2,), raw(5, 6))], parameters=b'{"k":1}')
    found = slot_of(instance, ANSWER)
    assert floats(found.outputs[0][4]) == [12, 13] and found.parameters == b'{"p":"{\\"k\\":1}"}'
    assert slot_of_done(instance) == 1


def slot_of_done(instance: Instance) -> int:
    return slot_of(instance, CALL_DONE).request


def test_the_server_is_told_before_the_first_call(calling, router):
    instance = calling("return [answer(out(ask(arr(r)).exec())) for _ in range(1)]")
    instance.plane.push([instance.record([1], [0])])
    call_of(instance).reply([("O", FP32, (1,), raw(1))])
    assert router.until("calls") == {"t": "calls"}


def test_an_error_is_in_the_response(calling):
    instance = calling("x = ask(arr(r)).exec(); return [pb_utils.InferenceResponse([], error=x.error())]")
    instance.plane.push([instance.record([1], [0])])
    call_of(instance).fail(3, "no such thing")
    while (slot := instance.plane.next()).kind != ERROR:
        assert slot.kind == CALL_DONE
    assert (slot.status, slot.text) == (3, "no such thing")


def test_no_room_for_an_answer_is_said(calling):
    instance = calling("x = ask(arr(r)).exec(); return [pb_utils.InferenceResponse([], error=x.error())]")
    instance.plane.push([instance.record([1], [0])])
    call_of(instance)._put(ERROR, True, 5, 0, 0, 0)
    slot = instance.plane.next()
    assert slot.status == 5 and "no room in the input arena of this model" in slot.text


def test_large_inputs_of_the_request_are_not_copied(calling):
    instance = calling("a = arr(r); return [answer(out(ask(a, a[::2]).exec()))]")
    (ticket,) = instance.plane.push([instance.record([1.0] * LARGE, [0])])
    call = call_of(instance)
    assert call.places[0][:2] == (0, ticket) and call.places[1][0] == 1, "a strided view is copied"
    assert call.inputs[0][3] == raw(*[1.0] * LARGE) and len(call.inputs[1][3]) == 2 * LARGE
    call.reply([("O", FP32, (1,), raw(1))])
    slot_of(instance, ANSWER)


def test_large_answers_are_seen_where_they_lie_until_they_are_let_go(calling):
    body = """
x = out(ask(arr(r)).exec())
total = x.sum()
x[0] = 100
y = out(ask(x).exec())
self.kept.append(y)
if len(self.kept) > 1: self.kept.clear()
return [answer(np.array([total, y[0]], 'f4'))]
"""
    instance = calling(body)
    other = Shared(1 << 20)
    other.memory[4096 : 4096 + 4 * LARGE] = raw(*[2.0] * LARGE)
    instance.plane.show(1, other)
    for turn in range(2):
        instance.plane.push([instance.record([1], [0])])
        call_of(instance).reply([("O", FP32, (LARGE,), (1 << 48 | 4096, 4 * LARGE))], answer=2 * turn + 1)
        call = call_of(instance)
        assert call.places[0][0] == 1, "what the model wrote into is copied"
        assert floats(call.inputs[0][3])[:2] == [100, 2] and floats(other.memory[4096:4100]) == [2]
        call.reply([("O", FP32, (LARGE,), (1 << 48 | 4096, 4 * LARGE))], answer=2 * turn + 2)
        assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [2 * LARGE, 2]
    done = sorted(slot_of_done(instance) for _ in range(3))
    assert done in ([2, 3, 4], [1, 2, 4], [1, 3, 4], [1, 2, 3])


def test_an_answer_that_is_passed_on_is_not_copied(calling):
    instance = calling("x = out(ask(arr(r)).exec()); y = out(ask(x).exec()); return [answer(y)]")
    other = Shared(1 << 20)
    instance.plane.show(1, other)
    instance.plane.push([instance.record([1], [0])])
    call_of(instance).reply([("O", FP32, (LARGE,), (1 << 48 | 8192, 4 * LARGE))], answer=5)
    call = call_of(instance)
    assert call.places == [(2, 5, 1 << 48 | 8192, 4 * LARGE)]
    call.reply([("O", FP32, (1,), raw(9))])
    assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [9]


@both
def test_an_iterator_gives_each_response_as_it_comes(calling):
    body = """
it = ask(arr(r)).exec(decoupled=True)
got = [float(out(x)[0]) if x.output_tensors() else -1.0 for x in it]
try:
    next(it)
except StopIteration as e:
    assert str(e) == "Iteration is done for the responses."
it.cancel()
return [answer(np.array(got, 'f4'))]
"""
    instance = calling(body)
    instance.plane.push([instance.record([1], [0])])
    call = call_of(instance)
    assert call.flags & ANY_NUMBER
    for value in (4, 5):
        call.reply([("O", FP32, (1,), raw(value))], final=False, answer=value)
    call.end()
    assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [4, 5, -1]


def test_cancel_and_letting_go_are_told(calling):
    body = """
if arr(r)[0] == 1:
    it = ask(arr(r)).exec(decoupled=True)
    it.cancel()
    del it
else:
    ask(arr(r)).exec()
return [answer(arr(r))]
"""
    instance = calling(body)
    instance.plane.push([instance.record([1], [0])])
    call = call_of(instance)
    asked = slot_of(instance, CALL_CANCEL)
    forgot = slot_of(instance, CALL_CANCEL)
    assert (asked.request, asked.flags) == (call.number, 0) and (forgot.request, forgot.flags) == (call.number, FINAL)
    slot_of(instance, ANSWER)
    call.reply([("O", FP32, (1,), raw(1))], answer=77)  # it was on its way
    instance.plane.push([instance.record([2], [0])])
    call_of(instance).end()
    assert slot_of_done(instance) == 77


def test_threads_wait_at_the_same_time_and_answers_may_come_in_any_order(calling):
    body = """
got = {}
def one(i):
    got[i] = float(out(ask(np.array([i], 'f4')).exec())[0])
threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
for t in threads: t.start()
one(8)
for t in threads: t.join()
assert got == {i: i * 10.0 for i in range(9)}, got
return [answer(arr(r))]
"""
    instance = calling(body)
    for turn in range(3):
        instance.plane.push([instance.record([1], [0])])
        calls = [call_of(instance) for _ in range(9)]
        assert sorted(bool(call.flags & WAITS) for call in calls) == [False] * 8 + [True]
        for call in calls[::-1] if turn else calls[::2] + calls[1::2]:
            call.reply([("O", FP32, (1,), raw(10 * floats(call.inputs[0][3])[0]))], answer=call.number)
        assert slot_of(instance, ANSWER).status == 0


COROUTINE = """
async def execute(self, rs):
    r = rs[0]
    a = [float(out(x)[0]) for x in await asyncio.gather(*[ask(np.array([i], 'f4')).async_exec() for i in range(4)])]
    got = []
    async for x in await ask(arr(r)).async_exec(decoupled=True):
        got.append(float(out(x)[0]) if x.output_tensors() else -1.0)
        pb_utils.Logger.log_info('got')
    late = ask(arr(r)).async_exec()
    try:
        await asyncio.wait_for(late, 0.05)
    except asyncio.TimeoutError:
        got.append(-2.0)
    got.append(float(out(ask(arr(r)).exec())[0]))
    return [answer(np.array(a + got, 'f4'))]
"""


@both
def test_coroutines(calling, router):
    instance = calling("", source=f"{HEAD}{ASK}\nclass TritonPythonModel:\n" + textwrap.indent(COROUTINE, "    "))
    instance.plane.push([instance.record([1], [0])])
    for call in [call_of(instance) for _ in range(4)][::-1]:
        call.reply([("O", FP32, (1,), raw(floats(call.inputs[0][3])[0]))], answer=call.number)
    stream = call_of(instance)
    stream.reply([("O", FP32, (1,), raw(7))], final=False, answer=20)
    while router.receive().get("msg") != "got":  # it is told first that the model calls others
        pass
    stream.end()
    late = call_of(instance)
    assert slot_of(instance, CALL_CANCEL).request == late.number
    last = call_of(instance)
    late.reply([("O", FP32, (1,), raw(1))], answer=21)
    last.reply([("O", FP32, (1,), raw(8))], answer=22)
    assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [0, 1, 2, 3, 7, -1, -2, 8]


def test_a_coroutine_of_a_decoupled_model_names_its_request(calling):
    execute = """
    async def execute(self, rs):
        for r in rs:
            x = await ask(arr(r)).async_exec()
            r.get_response_sender().send(answer(out(x)), 1)
"""
    instance = calling("", source=f"{HEAD}{ASK}\nclass TritonPythonModel:{execute}", decoupled=True)
    tickets = [instance.plane.push([instance.record([i], [0])])[0] for i in range(3)]
    calls = [call_of(instance) for _ in range(3)]
    assert [call.parent for call in calls] == tickets and not calls[0].flags & WAITS
    for call in calls:
        call.reply([("O", FP32, (1,), raw(3))], answer=call.number)
    for _ in range(3):
        assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [3]


REFUSED = """
def tried(call):
    try:
        return repr(call())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
def all_of_it():
    q = ask(np.zeros(1, 'f4'))
    return [tried(call) for call in (q.exec, lambda: q.exec(decoupled=True), q.async_exec,
            lambda: pb_utils.is_model_ready("other"), lambda: pb_utils.load_model("other"))]
"""


def test_not_in_initialize_or_finalize(serve, load):
    source = ASK + REFUSED + model(
        "return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(chr(10).join(self.said)))]",
        "    def initialize(self, args):\n        self.said = all_of_it()\n"
        "    def finalize(self):\n        print(chr(10).join(all_of_it()))",
    )  # fmt: skip
    instance = serve(source)
    said = instance.ask([1], [0]).text.splitlines()
    instance.stop()
    instance.exit_status()
    assert said == instance.printed().splitlines() == [
        "TritonModelException: BLS is only supported during the 'execute' function.",
        "TritonModelException: BLS is only supported during the 'execute' function.",
        "RuntimeError: no running event loop",
        "TritonModelException: Failed to check model readiness: Failed to process the request for model 'm_0_0', "
        "message: Server not ready",
        "TritonModelException: Failed to load model: Failed to process the request for model 'm_0_0', "
        "message: Server not ready",
    ]  # fmt: skip


def test_models_are_asked_about_over_the_control_plane(calling, router):
    instance = calling("""
import sys
ready = [pb_utils.is_model_ready("other"), pb_utils.is_model_ready("other", "2")]
try:
    pb_utils.load_model("other")
except pb_utils.TritonModelException as error:
    return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(f"{ready} {error}"))]
""")
    instance.plane.push([instance.record([1], [0])])
    for wanted, answer in (
        ({"do": "ready", "name": "other", "version": ""}, {"ready": True}),
        ({"do": "ready", "name": "other", "version": "2"}, {"ready": False}),
        ({"do": "load", "name": "other"}, {"error": "not allowed"}),
    ):
        asked = router.until("model")
        assert {name: asked[name] for name in wanted} == wanted
        router.send(instance.id, {"t": "answer", "n": asked["n"], **answer})
    text = instance.plane.next().text
    assert text == (
        "[True, False] Failed to load model: Failed to process the request for model 'm_0_0', message: not allowed"
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("r.exec()", "TritonModelException: exec() of a request that `execute` was given: its own model would wait"),
        ("ask(arr(r)).exec('x')", "TypeError: exec(): decoupled must be an integer, not an object of type str"),
        ("pb_utils.load_model(3)", "TypeError: load_model(): model_name must be a str or bytes, not an object"),
        ("ask(arr(r), model_name='n' * 5000).exec()", "a name of 5000 bytes; 4096 is the limit"),
        ("ask(np.zeros(1 << 22, 'f4')).exec().error().message()", "does not fit the output arena of"),
    ],
)
def test_what_is_refused_in_the_worker(calling, call, text):
    instance = calling(f"return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(tried(lambda: {call})))]",
                       REFUSED)  # fmt: skip
    assert text in instance.ask([1], [0]).text


STREAM_IN_COROUTINE = """
async def execute(self, rs):
    asked = ask(arr(rs[0])).async_exec(decoupled=True)
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
        if turns == 100:
            self.turned()
    return [answer(np.array([float(out(x)[0]) for x in asked.result() if x.output_tensors()] + [turns >= 100], 'f4'))]

def turned(self):
    ask(np.array([5], 'f4')).exec()
"""


def test_a_stream_that_a_coroutine_asks_for_is_there_with_its_first_response(calling):
    """So that a plain `for`, which stops the event loop, need not wait for it."""
    source = f"{HEAD}{ASK}\nclass TritonPythonModel:\n" + textwrap.indent(STREAM_IN_COROUTINE, "    ")
    instance = calling("", source=source)
    instance.plane.push([instance.record([1], [0])])
    stream = call_of(instance)
    call_of(instance).reply([("O", FP32, (1,), raw(0))], answer=1)  # the event loop has gone on turning
    stream.reply([("O", FP32, (1,), raw(7))], final=False, answer=20)
    stream.reply([("O", FP32, (1,), raw(8))], final=False, answer=21)
    stream.end()
    assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [7, 8, 1]


def test_a_stream_that_a_coroutine_no_longer_waits_for_is_given_up(calling):
    body = """
async def execute(self, rs):
    try:
        await asyncio.wait_for(ask(arr(rs[0])).async_exec(decoupled=True), 0.05)
    except asyncio.TimeoutError:
        return [answer(np.array([9], 'f4'))]
"""
    instance = calling("", source=f"{HEAD}{ASK}\nclass TritonPythonModel:\n" + textwrap.indent(body, "    "))
    instance.plane.push([instance.record([1], [0])])
    stream = call_of(instance)
    cancelled = slot_of(instance, CALL_CANCEL)
    assert (cancelled.request, cancelled.flags & FINAL) == (stream.number, FINAL)
    assert floats(slot_of(instance, ANSWER).outputs[0][4]) == [9]
