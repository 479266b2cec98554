"""How many requests a second the client itself can do: its load against a program that only answers.  Layer 5 (bench).

The program sends what the server has answered once, so requests and answers have their true sizes.  What counts is the
processor time of the load's thread: the program may be slower than the client, and others may use the machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.bench import answerer
from tisfast.bench.client_side import clocks
from tisfast.bench.loop import Loop, Tally
from tisfast.bench.session import SECOND_NS, Session
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.wire.grpc.client_session import GrpcClientSession
from tisfast.wire.http1 import Http1Client

IN_FLIGHT_MAX: Final = 64
"""A client that is busy finds many answers at one look, which costs it less than one by one."""
WARM_UP_SECONDS: Final = 0.2
SECONDS: Final = 1.0
ANSWER_SECONDS_MAX: Final = 60.0
PATH: Final = "/inference.GRPCInferenceService/ModelInfer"


def calibrate(session: Session) -> float:
    """Requests a second of one core.  Raises TisError where they cannot be measured."""
    if session.model.sequences:
        raise BadRequest("--calibrate: requests of sequences differ, so no program answers them alike; leave it out")
    grpc = session.asked.address.grpc
    answer = _grpc_answer(session) if grpc else _http_answer(session)
    if len(answer) > limits.HTTP2_STREAM_WINDOW_BYTES // 2:
        raise BadRequest(
            f"--calibrate: an answer has {len(answer)} bytes, and it is measured up to "
            f"{limits.HTTP2_STREAM_WINDOW_BYTES // 2}; leave it out"
        )
    most = max(min(IN_FLIGHT_MAX, limits.HTTP2_CONNECTION_WINDOW_BYTES // 2 // max(len(answer), 1)), 1)
    with _answering("grpc" if grpc else "http", answer) as place:
        return _measured(session, place, most)


def _measured(session: Session, place: Any, in_flight: int) -> float:
    loop = session.loop_to(place, socket.AF_INET, in_flight)
    try:
        loop.open_connections(in_flight)
        if not loop.ready(time.monotonic_ns() + int(limits.BENCH_CONNECT_SECONDS_MAX * SECOND_NS)):
            raise Unavailable(f"--calibrate: the program that answers takes no connections: {loop.lost_text}")
        loop.keep_in_flight(in_flight)
        _run(loop, WARM_UP_SECONDS)
        before = clocks().cpu_ns
        tally = _run(loop, SECONDS)
        spent = clocks().cpu_ns - before
        _, first = loop.swap_errors()
    finally:
        loop.close()
    if first is not None or not tally.completed:
        raise Unavailable(
            f"--calibrate: the answers of its own program fail: {first[0] if first else 'there are none'}"
        )
    return SECOND_NS * tally.completed / max(spent, 1)


def _run(loop: Loop, seconds: float) -> Tally:
    end = time.monotonic_ns() + int(seconds * SECOND_NS)
    while time.monotonic_ns() < end:
        loop.run(end)
    return loop.swap()


@contextmanager
def _answering(kind: str, answer: bytes) -> Iterator[Any]:
    """The program's address; it ends with this."""
    with socket.create_server(("127.0.0.1", 0), backlog=IN_FLIGHT_MAX) as listening:
        command = [sys.executable, "-I", str(Path(answerer.__file__)), kind, str(listening.fileno())]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            bufsize=0,
            start_new_session=True,  # Ctrl-C is ours
        )
        try:
            assert process.stdin is not None
            process.stdin.write(len(answer).to_bytes(8, "big"))
            view = memoryview(answer)
            while view:
                view = view[process.stdin.write(view) or 0 :]
            yield listening.getsockname()
        except BrokenPipeError:
            raise Unavailable(f"--calibrate: its program ended by itself, with code {process.wait()}") from None
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _connected(session: Session) -> socket.socket:
    place, family = session.place
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(ANSWER_SECONDS_MAX)
        made.connect(place)
        return made
    except OSError as error:
        made.close()
        raise _lost(error) from None


def _http_answer(session: Session) -> bytes:
    """All bytes of one, as they came."""
    template = session.templates[0]
    reading, found = Http1Client(), b""
    reading.sent(template.head)
    with _connected(session) as made:
        try:
            made.sendall(template.text)
            while True:
                piece = made.recv(1 << 16)
                found += piece
                if not piece:
                    raise Unavailable(
                        "--calibrate: the server closes the connection behind an answer, so none can be repeated"
                    )
                if any(kind == "end" for kind, _ in reading.receive(piece)):
                    break
        except OSError as error:
            raise _lost(error) from None
    if not reading.reusable:
        raise Unavailable("--calibrate: the server wants a new connection for each request, which is not measured")
    return found


def _grpc_answer(session: Session) -> bytes:
    """The message."""
    asked = session.asked
    speaking = GrpcClientSession(asked.address.authority)
    call = speaking.start(PATH, metadata=asked.headers)
    speaking.send(call, session.templates[0].text[5:], last=True)
    messages: list[bytes] = []
    with _connected(session) as made:
        try:
            while call.code < 0:
                made.sendall(speaking.outgoing())
                piece = made.recv(1 << 16)
                if not piece:
                    raise Unavailable("--calibrate: the server has closed the connection")
                messages += [event[2] for event in speaking.take(piece) if event[0] == "message"]
        except OSError as error:
            raise _lost(error) from None
    if call.code or len(messages) != 1:
        raise Unavailable(f"--calibrate: a request failed: {call.text or f'{len(messages)} answers'}")
    return messages[0]


def _lost(error: OSError) -> TisError:
    return Unavailable(f"--calibrate: the server gives no answer that could be repeated: {error.strerror or error}")
