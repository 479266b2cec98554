"""Inputs in other memory than the input arena: seen, written to, kept, passed on, and taken away while read."""

from __future__ import annotations

import os
from array import array

import pytest

from tests.workers.driver import FP32, Shared, floats, record
from tests.workers.models import ANSWER, ERROR, FINAL, RELEASE, RETAINED, both, model

FOREIGN = 16
COUNT = 40_000  # floats: more than PASS_VIEW_BYTES_MIN, so that views are passed by reference, too
NBYTES = 4 * COUNT
AT = 4096 + 192  # in the file: not the start of a page


def numbers(start: int, count: int = COUNT) -> bytes:
    return array("f", range(start, start + count)).tobytes()


def file_of(data: bytes, at: int = AT) -> Shared:
    made = Shared(at + len(data) + 8192)
    made.memory[at : at + len(data)] = data
    return made


def place(share: int, at: int = AT) -> int:
    return share << 48 | at


def request(where: int, *, count: int = COUNT, **options: object) -> bytes:
    return record([(0, FP32, (count,), (where, 4 * count))], flags=FOREIGN, **options)


def ask(instance, where: int, **options: object):
    instance.plane.push([request(where, **options)])
    return instance.plane.next()


@pytest.fixture
def shown(serve):
    """An instance of a model, and a file that it was told of as share 7."""

    def start(body: str, data: bytes = numbers(0), more: str = "", **load: object):
        instance, file = serve(model(body, more), **load), file_of(data)
        instance.plane.show(7, file)
        return instance, file

    return start


@both
def test_a_model_reads_an_input_of_another_file(shown):
    instance, _ = shown("return [answer(np.array([arr(r).sum(), arr(r)[-1]], np.float32))]", numbers(1))
    got = ask(instance, place(7))
    assert got.flags == FINAL and floats(got.outputs[0][4])[1] == COUNT


@both
def test_inputs_of_one_request_lie_here_and_elsewhere_or_nowhere(shown):
    instance, _ = shown(
        "missing = pb_utils.get_input_tensor_by_name(r, 'C') is None\n"
        "return [answer(np.array([arr(r)[1], arr(r, 'B')[2], missing], np.float32))]"
    )
    here = instance.plane.place(array("f", [7, 8, 9]).tobytes())
    inputs = [(0, FP32, (COUNT,), (place(7), NBYTES)), (1, FP32, (3,), here)]
    instance.plane.push([record(inputs, flags=FOREIGN)])
    assert floats(instance.plane.next().outputs[0][4]) == [1, 9, 1]


@both
def test_what_a_model_writes_nobody_else_sees(shown):
    instance, file = shown("a = arr(r); a *= 2; return [answer(a)]")
    for _ in range(3):  # written pages are dropped; from the second request on the input is copied
        got = ask(instance, place(7))
        assert got.outputs[0][3] == 1 and floats(got.outputs[0][4])[:3] == [0, 2, 4]
    assert file.memory[AT : AT + NBYTES] == numbers(0)


def test_two_requests_of_a_batch_with_the_same_input_do_not_see_each_other(shown):
    instance, _ = shown("arr(r)[:] = 9; return [answer(arr(x)[:2].copy()) for x in rs]")
    instance.plane.push([request(place(7)), request(place(7))])
    first, second = instance.plane.next(), instance.plane.next()
    assert floats(first.outputs[0][4]) == [9, 9] and floats(second.outputs[0][4]) == [0, 1]


@both
@pytest.mark.parametrize(
    ("body", "offset", "count"),
    [
        ("return [answer(arr(r))]", 0, COUNT),
        ("return [answer(arr(r)[8:-8])]", 32, COUNT - 16),
        ("return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('X', r.inputs()[0])])]", None, COUNT),
        ("t = r.inputs()[0]; t._name = 'X'; return [pb_utils.InferenceResponse([t])]", 0, COUNT),
    ],
    ids=["array", "view", "dlpack", "unread"],
)
def test_an_input_that_is_returned_unchanged_stays_where_it_is(shown, body, offset, count):
    instance, _ = shown(body)
    got = ask(instance, place(7))
    *_, arena, data = got.outputs[0]
    assert arena == (place(7, 0) if offset is not None else 1)
    assert data == numbers(0)[offset or 0 : (offset or 0) + 4 * count]


def test_a_view_across_a_written_page_is_copied(shown):
    instance, _ = shown("arr(r)[5] = -1; return [answer(arr(r)[:-2])]")
    got = ask(instance, place(7))
    assert got.outputs[0][3] == 1 and floats(got.outputs[0][4])[4:7] == [4, -1, 6]


@both
def test_an_input_that_is_kept_is_retained_and_stays_what_it_was(shown):
    body = """
if r.request_id() == "keep":
    self.kept[:] = [arr(r)[2:]]
    self.kept[0][0] = 77
    return [answer(np.zeros(1, np.float32))]
out = [answer(np.array([arr(r)[2], self.kept[0][0] if self.kept else 0], np.float32))]
self.kept.clear()
return out
"""
    instance, _ = shown(body)
    kept = ask(instance, place(7), id="keep")
    assert kept.flags == FINAL | RETAINED
    instance.plane.push([request(place(7))])
    both = sorted((instance.plane.next() for _ in range(2)), key=lambda a: a.kind)
    assert [a.kind for a in both] == [ANSWER, RELEASE] and both[1].request == kept.request
    assert floats(both[0].outputs[0][4]) == [2, 77]


def test_an_id_stands_for_another_file_once_the_worker_was_told(shown):
    instance, _ = shown("return [answer(arr(r)[:1].copy())]")
    assert floats(ask(instance, place(7)).outputs[0][4]) == [0]
    instance.plane.forget(7)
    instance.plane.show(7, file_of(numbers(500)))
    assert floats(ask(instance, place(7)).outputs[0][4]) == [500]


@pytest.mark.parametrize("where", [place(8), place(7, 1 << 40), place(7, 0)], ids=["unknown", "beyond", "before"])
def test_a_place_that_is_not_shown_fails_that_request_alone(shown, where):
    instance, file = shown("return [answer(arr(r)[:1].copy())]")
    instance.plane.forget(7)
    instance.plane.show(7, file, begin=AT, nbytes=NBYTES)
    got = ask(instance, where)
    assert got.kind == ERROR and "a tensor at share" in got.text
    assert ask(instance, place(7)).kind == ANSWER


def test_a_worker_waits_for_a_message_that_is_on_its_way(shown):
    instance, _ = shown("return [answer(arr(r)[:1].copy())]")
    file = file_of(numbers(30))
    instance.plane.told += 1
    instance.plane.push([request(place(9))])
    instance.plane.told -= 1
    with pytest.raises(TimeoutError):
        instance.plane.next(0.05)
    instance.plane.show(9, file)
    assert floats(instance.plane.next().outputs[0][4]) == [30]


@both
@pytest.mark.parametrize("warm", [False, True])
def test_memory_that_a_client_takes_away_fails_the_execution_and_not_the_worker(serve, warm):
    instance = serve(
        model("""
if r.request_id() == "cut":
    os.truncate(r.parameters()[1:-1], 8192)
a = arr(r)
return [answer(np.array([a.sum()], np.float32))]
""")
    )
    file = file_of(numbers(0))
    instance.plane.show(3, file, guarded=True)
    path = f"/proc/{os.getpid()}/fd/{file.fd}"
    if warm:
        assert ask(instance, place(3)).kind == ANSWER
    got = ask(instance, place(3), id="cut", parameters=f"{{{path}}}")
    assert got.kind == ERROR and "input 'A' lies in a shared memory region of the client, and its memory" in got.text
    again = file_of(numbers(0))
    instance.plane.show(4, again, guarded=True)
    assert ask(instance, place(4)).kind == ANSWER


def test_a_models_own_signal_handler_does_not_disarm_the_guard(serve):
    instance = serve(
        model("""
import faulthandler
faulthandler.enable()
if r.request_id() == "cut":
    os.truncate(r.parameters()[1:-1], 8192)
return [answer(np.array([arr(r).sum()], np.float32))]
""")
    )
    file = file_of(numbers(0))
    instance.plane.show(3, file, guarded=True)
    path = f"/proc/{os.getpid()}/fd/{file.fd}"
    assert ask(instance, place(3)).kind == ANSWER
    got = ask(instance, place(3), id="cut", parameters=f"{{{path}}}")
    assert got.kind == ERROR and "its memory went away" in got.text


def test_an_answer_made_while_the_memory_goes_is_an_error(serve):
    """The output is copied out of the input after `execute` has returned."""
    instance = serve(
        model("""
a = arr(r)
os.truncate(r.parameters()[1:-1], 8192)
return [answer(a[::2])]
""")
    )
    file = file_of(numbers(0))
    instance.plane.show(3, file, guarded=True)
    got = ask(instance, place(3), parameters=f"{{/proc/{os.getpid()}/fd/{file.fd}}}")
    assert got.kind == ERROR and "its memory went away" in got.text


@both
def test_forgotten_memory_is_unmapped_and_closed_while_the_worker_is_idle(shown):
    instance, file = shown("return [answer(arr(r)[:1].copy())]")
    assert ask(instance, place(7)).kind == ANSWER
    assert mapped(instance, file) and opened(instance, file)
    instance.plane.forget(7)
    instance.plane.nudge()
    while mapped(instance, file) or opened(instance, file):  # bounded by the test's timeout
        pass


def mapped(instance, file: Shared) -> bool:
    inode = str(os.fstat(file.fd).st_ino)
    with open(f"/proc/{instance.pid}/maps") as lines:
        return any(line.split()[4] == inode for line in lines)


def opened(instance, file: Shared) -> bool:
    folder = f"/proc/{instance.pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.path.samestat(os.stat(f"{folder}/{name}"), os.fstat(file.fd)):
                return True
        except FileNotFoundError:  # closed meanwhile
            continue
    return False
