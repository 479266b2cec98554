"""GPU memory of another process that this one cannot open: when it is tried again, and what the server is told."""

from __future__ import annotations

import socket
import struct
import threading
from types import SimpleNamespace

import pytest
from tisfast_worker import device_arena, foreign_memory, limits, native, nursery, serving_context
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.cuda import CudaError, DeviceLost
from tisfast_worker.failure import WireError

REFUSED = CudaError("cuIpcOpenMemHandle_v2: invalid device context", 201)
LOST = CudaError("cuStreamCreate: unspecified launch failure", 719)
HANDLE = b"h" * 64


@pytest.fixture
def server(monkeypatch):
    """The server, as a worker speaks to it: `told`, and `asked` with an answer to each question; `now`: the time."""
    found = SimpleNamespace(told=[], asked=[], now=1000.0)
    serving = serving_context.current()

    def ask(message):
        found.asked.append(message)
        return {"handle": HANDLE, "bytes": 1 << 21}

    monkeypatch.setattr(serving, "tell", found.told.append)
    monkeypatch.setattr(serving, "ask", ask)
    clock = SimpleNamespace(monotonic=lambda: found.now)
    monkeypatch.setattr(foreign_memory, "time", clock)
    monkeypatch.setattr(device_arena, "time", clock)
    return found


@pytest.fixture
def opens(monkeypatch):
    """opens(error, ...): what the next tries to open memory meet; None and those behind: it opens."""

    def order(*errors):
        left = list(errors)

        def open_it(handle, of_client=False):
            assert handle == HANDLE
            error = left.pop(0) if left else None
            if error is not None:
                raise error
            return SimpleNamespace(address=0)

        for module in (foreign_memory, device_arena):
            monkeypatch.setattr(module, "OpenedMemory", open_it)
        monkeypatch.setattr(device_arena, "uuid", lambda: b"u" * 16)
        monkeypatch.setattr(device_arena.cuda, "stream", lambda device: None)

    return order


def share():
    made = foreign_memory.Share(3, 1, -1, True, 0, 64)
    made.handle = HANDLE
    return made


def test_a_share_is_tried_again_after_its_time(server, opens):
    opens(REFUSED)
    found = share()
    for _ in range(2):  # the driver is asked in the first one only
        with pytest.raises(CudaError, match="invalid device context"):
            found.memory()
    assert server.told == [{"t": "gpu_memory", "unopened": 3, "error": str(REFUSED)}]
    server.now += limits.LENT_REFUSED_SECONDS
    assert found.memory() is found.memory()


def test_a_finaliser_that_opens_it_in_the_middle_leaves_one_open(monkeypatch):
    """A model's, which the collector calls in the middle of anything."""
    closed, found = [], share()

    def opens(handle, of_client):
        made = SimpleNamespace(address=0, close=lambda: closed.append(made))
        if not found.failed:
            found.failed = "once"
            found.memory()
        return made

    monkeypatch.setattr(foreign_memory, "OpenedMemory", opens)
    assert found.memory() is found.memory()
    assert len(closed) == 1 and closed[0] is not found.opened


def test_the_server_is_told_again_where_the_second_try_fails(server, opens):
    opens(REFUSED, REFUSED)
    found = share()
    for _ in range(2):
        with pytest.raises(CudaError):
            found.memory()
        server.now += limits.LENT_REFUSED_SECONDS
    assert len(server.told) == 2


def test_a_copy_that_the_server_made_too_late_is_given_back(server, opens, monkeypatch):
    """Nobody takes it: the server must not keep its place for this instance (GPU_COPIES_MAX)."""

    def ask(message):
        assert message == {"t": "gpu_memory", "copy": 3, "offset": 16, "bytes": 8}
        late = ControlClosed("the server did not answer within 30 s")
        late.number = 41
        raise late

    monkeypatch.setattr(serving_context.current(), "ask", ask)
    opens(REFUSED)
    ours, theirs = socket.socketpair()
    found = foreign_memory.ForeignMemory(native.Library(nursery.LIBRARY), ours.detach(), lambda: None)
    found._shares[3] = share()
    with pytest.raises(WireError, match="the server cannot copy it: the server did not answer within 30 s"):
        found.on_device(3 << foreign_memory.SHARE_SHIFT | 16, 8, None, SimpleNamespace(name="A", shape=(2,)))
    assert server.told[-1] == {"t": "gpu_memory", "copied": 41}
    found.close()
    theirs.close()


@pytest.mark.parametrize(("refusal", "said"), [("", {}), ("no", {"error": "no"})])
def test_what_a_model_keeps_is_closed_by_the_loop_when_it_is_let_go(  # noqa: PLR0917
    server, opens, monkeypatch, refusal, said
):
    """Not by the finaliser, which may come in the middle of anything; and the server is told then, and not before."""
    opens()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nudged, closed, logged = [], [], []
    monkeypatch.setattr(serving_context.current(), "log", lambda *record: logged.append(record[1]))
    found = foreign_memory.ForeignMemory(native.Library(nursery.LIBRARY), ours.detach(), lambda: nudged.append(1))
    theirs.send(struct.pack("<BBHIQQ", 3, 1, 3, 0, 0, 64) + HANDLE)
    found.catch_up(1)
    kept = found.on_device(3 << foreign_memory.SHARE_SHIFT, 8, None, SimpleNamespace(name="A", shape=(2,)))
    found._shares[3].opened.close = lambda: closed.append(1) or refusal
    theirs.send(struct.pack("<BBHIQQ", 2, 0, 3, 0, 0, 0))
    found.catch_up(2)
    assert (server.told, closed, nudged) == ([], [], [])
    dropping = threading.Thread(target=[kept].clear)
    del kept
    dropping.start()
    dropping.join()
    assert (server.told, closed, nudged) == ([], [], [1])
    found.rest(lambda: False)
    assert server.told == [{"t": "gpu_memory", "closed": 3, **said}] and closed == [1]
    assert [refusal in each for each in logged] == [True] * bool(refusal)
    found.close()
    theirs.close()


def test_what_cannot_be_closed_as_the_gpu_is_lost_is_closed_by_the_end_of_the_process(server, opens):
    """The server hears of nothing that is open still, and the loop ends the process."""
    opens()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found = foreign_memory.ForeignMemory(native.Library(nursery.LIBRARY), ours.detach(), lambda: None)

    def fails():
        raise CudaError("cuIpcCloseMemHandle: unspecified launch failure", 719)

    for number in (3, 4):
        found._let_go(number, SimpleNamespace(close=fails))
    found.rest(lambda: False)
    assert server.told == [] and len(found.unneeded) == 1
    assert found.device_lost.startswith("closing GPU memory of another process failed: cuIpcCloseMemHandle: unspec")
    found.rest(lambda: False)
    assert server.told == []
    found.close()
    theirs.close()


def test_what_was_never_opened_is_closed_when_it_is_forgotten(server, opens):
    opens()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found = foreign_memory.ForeignMemory(native.Library(nursery.LIBRARY), ours.detach(), lambda: None)
    theirs.send(struct.pack("<BBHIQQ", 3, 1, 3, 0, 0, 64) + HANDLE)
    theirs.send(struct.pack("<BBHIQQ", 2, 0, 3, 0, 0, 0))
    found.catch_up(2)
    assert server.told == [{"t": "gpu_memory", "closed": 3}]
    found.close()
    theirs.close()


def lent():
    """An arena of an instance that may borrow."""
    library = SimpleNamespace(tf_arena_new=lambda *_: 1, tf_output_take=lambda *_: 64)
    return device_arena.DeviceArena(library, lambda: None, SimpleNamespace(device_lost=None))


def test_what_was_lent_in_vain_is_not_asked_for_again_when_idle(server, opens):
    opens(REFUSED)
    arena = lent()
    assert arena._take(64) == 0
    assert [each["unopened"] for each in server.told] == [device_arena._LENT_SHARE]
    arena.rest()
    assert arena._take(64) == 0 and len(server.asked) == 1
    server.now += limits.LENT_REFUSED_SECONDS
    assert arena._take(64) == 64 and len(server.asked) == 2


@pytest.mark.parametrize("is_closed", [False, True])
def test_who_was_lent_nothing_asks_again_a_while_after_the_answer(server, opens, monkeypatch, is_closed):
    """The answer may be late: counted from the question, each request would wait for the server anew."""
    tensor = SimpleNamespace(nbytes=lambda: 64)

    def refuses(message):
        server.asked.append(message)
        server.now += 3 * limits.LENDING_SECONDS
        if is_closed:
            raise ControlClosed("the server did not answer within 30 s")
        return {"error": "all are in use"}

    monkeypatch.setattr(serving_context.current(), "ask", refuses)
    opens()
    arena = lent()
    assert arena.copy(tensor) is None and len(server.asked) == 1
    for seconds, asked in ((0, 1), (limits.LENDING_SECONDS - 1, 1), (1, 2), (0, 2)):
        server.now += seconds
        assert arena.copy(tensor) is None
        assert len(server.asked) == asked


def test_who_no_longer_waits_to_be_lent_memory_says_so_before_it_asks_again(server, opens, monkeypatch):
    """Else the server lends it what it does not know of, in place of what it asks for later."""

    def ask(message):
        assert message["t"] == "gpu_memory" and "uuid" in message
        late = ControlClosed("the server did not answer within 30 s")
        late.number = 41
        raise late

    monkeypatch.setattr(serving_context.current(), "ask", ask)
    opens()
    assert lent()._take(64) == 0
    assert server.told == [{"t": "gpu_memory", "forgone": 41}]


def test_a_process_that_has_lost_its_gpu_does_not_say_that_it_cannot_open_memory(server, opens):
    opens(LOST)
    assert lent()._take(64) == 0
    assert server.told == []


def test_who_could_not_close_what_it_was_lent_keeps_what_it_is_lent_then(server, opens, monkeypatch):
    """Each part that is not closed is lost to others until the process ends: one is enough."""
    opens()
    library = SimpleNamespace(
        tf_arena_new=lambda *_: 1, tf_output_take=lambda *_: 64, tf_arena_used_blocks=lambda _: 0,
        tf_arena_delete=lambda _: None,
    )  # fmt: skip
    arena = device_arena.DeviceArena(library, lambda: None, SimpleNamespace(device_lost=None))
    logged = []
    monkeypatch.setattr(serving_context.current(), "log", lambda *record: logged.append(record[1]))
    for _ in range(2):
        assert arena._take(64) == 64
        arena._memory.close = lambda: "no"
        arena.rest()
    given = [each for each in server.asked if each.get("back")]
    assert given == [{"t": "gpu_memory", "back": True, "unclosed": True}]
    assert arena._memory is not None
    assert len(logged) == 1 and "is not closed by the driver in a process without an instance (no)" in logged[0]


def test_lent_memory_that_cannot_be_closed_as_the_gpu_is_lost_is_not_given_back(server, opens):
    """It is open until the process ends, as it does then."""
    opens()
    library = SimpleNamespace(
        tf_arena_new=lambda *_: 1, tf_output_take=lambda *_: 64, tf_arena_used_blocks=lambda _: 0,
        tf_arena_delete=lambda _: None,
    )  # fmt: skip
    lost = []
    arena = device_arena.DeviceArena(library, lambda: None, SimpleNamespace(lose_device=lost.append))

    def fails():
        raise CudaError("cuIpcCloseMemHandle: unspecified launch failure", 719)

    assert arena._take(64) == 64
    arena._memory.close = fails
    arena.rest()
    assert not any(each.get("back") for each in server.asked)
    assert len(lost) == 1 and isinstance(lost[0], DeviceLost)
    assert str(lost[0]).startswith("closing GPU memory that the server has lent failed: cuIpcCloseMemHandle: ")
