"""Sequences that meet: both servers form the same batches, in the same order."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.oracle.again import again
from tests.oracle.cases.sequences import END, START, ask
from tests.oracle.exchange import Answer, Request, converse
from tests.oracle.servers import Servers

pytestmark = pytest.mark.alone

HOLD_MS = 400
"""How long the first execution keeps the instance, while all that is to meet behind it comes."""
BETWEEN_SECONDS = 0.03


def told(future: Future[Answer]) -> Any:
    """The place in its batch that a request had, and what was seen there: the id and the flags of each."""
    answer = future.result()
    value = json.loads(answer.body)
    if answer.status != 200:
        return answer.status, value["error"]
    place, _, batch = value["outputs"][0]["data"][0].partition(" of ")
    return int(place), [(seen[0], seen[2]) for seen in json.loads(batch)]


def behind_each_other(servers: Servers, requests: list[Request]) -> list[Any]:
    """What each is told; the first holds the instance until all have come, one after the other."""
    address = servers.get().http
    pending = []
    with ThreadPoolExecutor(len(requests)) as pool:
        for request in requests:
            pending.append(pool.submit(lambda request: converse(address, [request])[0], request))
            time.sleep(BETWEEN_SECONDS)
        return [told(future) for future in pending]


MEETINGS = {
    "one waits for each place": [
        ask("MODEL", name="b", sequence_id=22, **START), ask("MODEL", name="a1", sequence_id=21),
        ask("MODEL", name="b1", sequence_id=22, **END), ask("MODEL", name="a2", sequence_id=21, **END),
    ],
    "places are kept": [
        ask("MODEL", name="b", sequence_id=22, **START), ask("MODEL", name="b1", sequence_id=22),
        ask("MODEL", name="b2", sequence_id=22, **END), ask("MODEL", name="a1", sequence_id=21, **END),
    ],
    "a third finds room": [
        ask("MODEL", name="a1", sequence_id=21, **END), ask("MODEL", name="b", sequence_id=22, **START),
        ask("MODEL", name="c", sequence_id=23, **START, **END), ask("MODEL", name="b1", sequence_id=22, **END),
    ],
    "one is too late": [
        ask("MODEL", name="b", sequence_id=22, **START), ask("MODEL", name="c", sequence_id=23, **START),
        ask("MODEL", name="d", sequence_id=24, **START),
        ask("MODEL", name="e", sequence_id=25, timeout=10000, **START),  # before the next one comes
        ask("MODEL", name="a1", sequence_id=21, **END), ask("MODEL", name="b1", sequence_id=22, **END),
        ask("MODEL", name="c1", sequence_id=23, **END), ask("MODEL", name="d1", sequence_id=24, **END),
    ],
}  # fmt: skip


@pytest.mark.parametrize("meeting", MEETINGS)
@again
def test_they_meet_alike(meeting: str, triton: Servers, tisfast: Servers) -> None:
    """Direct.  What meets behind the oldest strategy is Triton's luck: its dynamic batcher may have made up its batch
    before the answered sequence's next request has come to it."""
    first = ask("MODEL", HOLD_MS, name="a", sequence_id=21, **START)
    requests = [
        request._replace(target=request.target.replace("MODEL", "sequence_direct"))
        for request in (first, *MEETINGS[meeting])
    ]
    theirs = behind_each_other(triton, requests)
    assert behind_each_other(tisfast, requests) == theirs
