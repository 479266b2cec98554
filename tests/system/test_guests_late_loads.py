"""Loads of guests that take longer than the guest waits."""

from __future__ import annotations


def test_a_load_that_the_guest_gave_up_leaves_nothing_behind(serve_guests, join):
    server = serve_guests()
    guest = join(
        """
from tisfast_worker.backend import ArrayBackend
release = threading.Event()
class Slow(ArrayBackend):
    def load(self):
        release.wait()
    def execute(self, inputs):
        return {"B": inputs["A"] + 5}
with join(DIRECTORY) as server:
    try:
        server.serve("one", TENSORS, Slow, timeout=0.2)
    except GuestError as error:
        say("gave up:", error)
    release.set()
    server.serve("one", TENSORS, Add(1))
    say("serving", server.models)
    sys.stdin.readline()
    server.leave("one")
    say("left", server.models)
    server.wait()
"""
    )
    assert "not done it within 0.2 s" in guest.says("gave up:")
    assert "['one']" in guest.says("serving")
    assert server.infer("one")[0] == 200
    guest.tell("go on")
    assert "[]" in guest.says("left")
    assert server.ask("GET", "/v2/models/one/ready")[0] != 200
