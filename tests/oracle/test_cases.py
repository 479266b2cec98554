"""Each case of the tables, sent to both servers, is answered alike, or differs as differences.py says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle.alike import brief, differences
from tests.oracle.cases.everything import ALL
from tests.oracle.cases.table import Case
from tests.oracle.differences import BY_CASE, TABLE, VARYING
from tests.oracle.servers import Servers


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_both_servers_answer_alike_or_differ_as_listed(case: Case, triton: Servers, tisfast: Servers) -> None:
    with ThreadPoolExecutor(1) as other:  # both at once: a case that ends in silence takes its whole time
        pending = other.submit(triton.ask, case)
        ours = tisfast.ask(case)
    theirs = pending.result()
    if case.name not in BY_CASE:
        assert differences(theirs, ours) == {}
        return
    for answers, listed in zip((theirs, ours), BY_CASE[case.name], strict=True):
        found = brief(answers)
        assert found == listed or (listed.endswith("...") and found.startswith(listed[:-3]))
    assert case.name in VARYING or differences(theirs, ours), "answered alike by now: take it out of the table"


def test_every_deliberate_difference_is_of_a_case_that_exists() -> None:
    assert set(BY_CASE) <= {case.name for case in ALL}
    assert len(BY_CASE) == sum(len(each.cases) for each in TABLE), "a case is listed twice"
