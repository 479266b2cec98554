"""Loads of guests that take longer than the guest waits."""

from __future__ import annotations

from tests.system.guest_scripts import index, values
from tests.system.helpers import SECONDS_MAX, in_background, until


def test_a_load_that_the_guest_gave_up_leaves_nothing_behind(serve_guests, join):
    server = serve_guests()
    guest = join(
        """
from tisfast_worker.backend import ArrayBackend
release = threading.Event()
class Slow(ArrayBackend):
    def load(self):
        release.wait()
    def execute_arrays(self, inputs):
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


def test_a_model_that_leaves_while_another_guest_loads_its_name_has_left_once(serve_guests, join, tmp_path):
    server = serve_guests()
    first = join(
        f"""
GATE = {str(tmp_path / "gate")!r}
with join(DIRECTORY) as server:
    server.serve("one", TENSORS, Gated(1))
    say("serving")
    sys.stdin.readline()
    leave = server.begin_leave("one")
    leave.wait()
    say("left", server.models)
    sys.stdin.readline()
"""
    )
    first.says("serving")
    answers = []
    asking = in_background(lambda: answers.append(server.infer("one", [1.0])))
    first.says("executing")
    second = join(
        """
from tisfast_worker.backend import ArrayBackend
class Slow(ArrayBackend):
    def load(self):
        say("loading")
        sys.stdin.readline()
    def execute_arrays(self, inputs):
        return {"B": inputs["A"] + 5}
with join(DIRECTORY) as server:
    server.serve("one", TENSORS, Slow, take_over=True)
    say("serving")
    sys.stdin.readline()
"""
    )
    second.says("loading")
    first.tell("leave")
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "the first guest's model takes its leave")
    second.tell("load")
    second.says("serving")
    assert values(server.infer("one", [1.0])[1]) == [6.0]
    (tmp_path / "gate").touch()
    asking.join(SECONDS_MAX)
    assert values(answers[0][1]) == [2.0]
    assert first.says("left") == "left []"
    assert index(server)["one"][0] == "READY"
    assert not [record for record in server.log if "has lost its name" in record["message"]]
