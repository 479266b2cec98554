"""Conversations over gRPC, with both servers: what one call leaves, the next one meets."""

from __future__ import annotations

import pytest

from tests.oracle.cases.grpc_regions import CLEAN, TALKS
from tests.oracle.grpc_differences import TALKS as DIFFERENT
from tests.oracle.grpc_exchange import Answer, alike, brief
from tests.oracle.servers import Servers


def converse(servers: Servers, name: str) -> list[Answer]:
    answers = []
    try:
        for call in TALKS[name]:
            answers.append(servers.call(call))
            if call == CLEAN:
                servers.forget_regions()
        return answers
    finally:
        servers.forget_regions()


@pytest.mark.parametrize("name", TALKS)
def test_both_servers_answer_alike_or_differ_as_listed(name: str, triton: Servers, tisfast: Servers) -> None:
    theirs, ours = converse(triton, name), converse(tisfast, name)
    said = f"\nTriton:  {' | '.join(map(brief, theirs))}\ntisfast: {' | '.join(map(brief, ours))}"
    same = [alike(*answers) for answers in zip(theirs, ours, strict=True)]
    if name not in DIFFERENT:
        assert all(same), said
        return
    assert brief(ours[same.index(False)]).startswith(DIFFERENT[name][1]), said


def test_every_deliberate_difference_is_of_a_talk_that_exists() -> None:
    assert set(DIFFERENT) <= set(TALKS)
