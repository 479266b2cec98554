"""Every case that is compared with Triton, on two servers of ours: one in which the event loop reads and writes
everything, one in which codec processes do.  They answer alike, errors included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle.alike import differences
from tests.oracle.cases.everything import ALL
from tests.oracle.cases.grpc_calls import CALLS, Call
from tests.oracle.cases.table import Case
from tests.oracle.conftest import region_contents, region_file  # noqa: F401 - what the cases expect there
from tests.oracle.grpc_exchange import alike, brief
from tests.oracle.servers import Servers  # noqa: F401 - what the cases expect there


@pytest.fixture(scope="module")
def loop_server() -> Iterator[Servers]:
    servers = Servers("tisfast", "--codec-processes=0")
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def codec_server() -> Iterator[Servers]:
    servers = Servers("tisfast", "--codec-bytes-min=0")
    yield servers
    servers.stop()


HTTP_CASES = [case for case in ALL if case.place == "models"]


@pytest.mark.parametrize("case", HTTP_CASES, ids=[case.name for case in HTTP_CASES])
def test_a_case_is_answered_by_codecs_as_by_the_loop(case: Case, loop_server: Servers, codec_server: Servers) -> None:
    assert differences(loop_server.ask(case), codec_server.ask(case)) == {}


@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_a_grpc_call_is_answered_by_codecs_as_by_the_loop(
    call: Call, loop_server: Servers, codec_server: Servers
) -> None:
    theirs, ours = loop_server.call(call), codec_server.call(call)
    assert alike(theirs, ours), f"\nloop:   {brief(theirs)}\ncodecs: {brief(ours)}"
