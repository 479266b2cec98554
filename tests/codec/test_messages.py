"""Messages over a stream socket: whole ones come out, in order, each with its descriptor."""

from __future__ import annotations

import os
import socket

import pytest

from tests.descriptors import open_descriptors
from tisfast.codec.messages import HEAD, Inbox, packed
from tisfast.limits import CODEC_MESSAGE_BYTES_MAX


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def take(inbox):
    return list(inbox.messages())


def test_a_message_in_pieces_comes_whole(ends):
    ours, theirs = ends
    inbox = Inbox()
    data = packed(("done", (1, b"x", "é", None, 1.5, {"a": -1})), 0)
    for i in range(len(data)):
        assert take(inbox) == []
        ours.send(data[i : i + 1])
        assert inbox.read(theirs)
    assert take(inbox) == [(("done", (1, b"x", "é", None, 1.5, {"a": -1})), -1)]


def test_several_come_in_their_order_each_with_its_descriptor(ends, tmp_path):
    ours, theirs = ends
    inbox = Inbox()
    for name in ("a", "b"):
        with (tmp_path / name).open("w+") as file:
            socket.send_fds(ours, [packed((name,), 1)], [file.fileno()])
        ours.send(packed((name, "next"), 0))
    found = []
    while len(found) < 4:
        assert inbox.read(theirs)
        found += take(inbox)
    assert [message for message, _ in found] == [("a",), ("a", "next"), ("b",), ("b", "next")]
    names = [os.readlink(f"/proc/self/fd/{fd}") if fd >= 0 else None for _, fd in found]
    assert names == [str(tmp_path / "a"), None, str(tmp_path / "b"), None]
    for _, fd in found:
        if fd >= 0:
            os.close(fd)


def test_a_message_that_is_too_long_is_none(ends):
    ours, theirs = ends
    inbox = Inbox()
    ours.send(HEAD.pack(CODEC_MESSAGE_BYTES_MAX + 1, 0))
    assert inbox.read(theirs)
    with pytest.raises(ValueError, match="is the limit"):
        take(inbox)


def test_the_end_of_the_stream(ends):
    ours, theirs = ends
    ours.close()
    assert not Inbox().read(theirs)


def test_descriptors_that_nobody_took_are_closed(ends, tmp_path):
    ours, theirs = ends
    inbox = Inbox()
    with (tmp_path / "a").open("w+") as file:
        socket.send_fds(ours, [packed(("a",), 1)[:3]], [file.fileno()])
    before = open_descriptors()
    assert inbox.read(theirs)
    assert len(open_descriptors() - before) == 1
    inbox.close()
    assert open_descriptors() <= before
