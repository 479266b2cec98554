"""Each call of the tables, made of both servers, is answered alike, or differs as grpc_differences.py says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle.cases.grpc_calls import CALLS, Call
from tests.oracle.grpc_differences import BY_CALL, TABLE
from tests.oracle.grpc_exchange import alike, brief
from tests.oracle.servers import Servers


@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_both_servers_answer_alike_or_differ_as_listed(call: Call, triton: Servers, tisfast: Servers) -> None:
    with ThreadPoolExecutor(1) as other:
        pending = other.submit(triton.call, call)
        ours = tisfast.call(call)
    theirs = pending.result()
    if call.name not in BY_CALL:
        assert alike(theirs, ours), f"\nTriton:  {brief(theirs)}\ntisfast: {brief(ours)}"
        return
    assert brief(ours).startswith(BY_CALL[call.name])
    assert not alike(theirs, ours), "answered alike by now: take it out of the table"


def test_every_deliberate_difference_is_of_a_call_that_exists() -> None:
    assert set(BY_CALL) <= {call.name for call in CALLS}
    assert len(BY_CALL) == sum(len(calls) for calls in TABLE.values()), "a call is listed twice"
