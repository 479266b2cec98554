"""Large answers that clients do not read: their streams wait, and leave room for those that are read."""

from __future__ import annotations

import pytest

from tests.workers.models import ANSWER, FINAL, model

EXECUTED = 6
FLOATS = 30_000  # 120 KB; the arena below holds four of them
ARENA = 1 << 20
BODY = """
import threading
count = int(r.request_id())
def work(s):
    for i in range(count):
        s.send(answer(np.full(FLOATS, i, 'f4')))
    s.send(flags=1)
threading.Thread(target=work, args=(r.get_response_sender(),)).start()
r = rs = None
""".replace("FLOATS", str(FLOATS))


@pytest.fixture
def streams(serve):
    """A decoupled model whose streams send as many large answers as the request's id says."""
    instance = serve(model(BODY), decoupled=True, output_bytes=ARENA)

    class Streams:
        def ask(self, count):
            (ticket,) = instance.plane.push([instance.record([1], [0], id=str(count))])
            return ticket

        def next(self):
            """The next answer or end of a stream."""
            while True:
                found = instance.plane.next()
                if found.kind == ANSWER or found.flags & FINAL:
                    return found

        def read(self, ticket):
            """Read one stream to its end, as fast as it comes; the number of its answers."""
            count = 0
            while True:
                found = self.next()
                assert found.request == ticket, "the other stream has got further"
                if found.kind != ANSWER:
                    return count
                count += 1
                instance.plane.give_back(found.block)

        give_back = instance.plane.give_back

    return Streams()


def test_a_stream_that_is_not_read_holds_half_of_the_arena(streams):
    slow = streams.ask(10)
    unread = [streams.next() for _ in range(3)]  # after the second it holds as much as is left
    assert {answer.request for answer in unread} == {slow}
    quick = streams.ask(20)
    assert streams.read(quick) == 20
    for answer in unread:
        streams.give_back(answer.block)
    assert streams.read(slow) == 7


def test_of_two_each_holds_less(streams):
    one = streams.ask(10)
    unread = [streams.next() for _ in range(3)]
    two = streams.ask(10)
    unread.append(streams.next())  # a stream may always have one
    assert [answer.request for answer in unread] == [one] * 3 + [two]
    streams.give_back(unread.pop().block)
    assert streams.read(two) == 9
    for answer in unread:
        streams.give_back(answer.block)
    assert streams.read(one) == 7


ONE_EACH = """
import threading
count = int(r.request_id())
def work(s):
    s.send(answer(np.full(count, count, 'f4')))
    s.send(flags=1)
threading.Thread(target=work, args=(r.get_response_sender(),)).start()
r = rs = None
"""


def test_an_answer_that_waits_for_room_lets_others_send(serve):
    instance = serve(model(ONE_EACH), decoupled=True, output_bytes=ARENA)
    plane = instance.plane

    def ask(count):
        (ticket,) = plane.push([instance.record([1], [0], id=str(count))])
        return ticket

    def answer(ticket):
        while (found := plane.next()).kind != ANSWER:
            pass
        assert found.request == ticket
        return found

    first = answer(ask(60_000))  # half of what may be in use
    large = ask(80_000)  # more than the other half
    for count in (10, 20, 30):
        plane.give_back(answer(ask(count)).block)
    plane.give_back(first.block)
    assert answer(large).outputs[0][2] == (80_000,)
