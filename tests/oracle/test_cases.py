"""Each case of the tables, sent to both servers, is answered alike, or differs as differences.py says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle.alike import differences
from tests.oracle.cases.everything import ALL
from tests.oracle.cases.table import Case
from tests.oracle.conftest import Servers
from tests.oracle.differences import DIFFERENCES


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_both_servers_answer_alike(case: Case, triton: Servers, tisfast: Servers) -> None:
    with ThreadPoolExecutor(1) as other:  # both at once: a case that ends in silence takes its whole time
        theirs = other.submit(triton.ask, case)
        ours = tisfast.ask(case)
    found = differences(theirs.result(), ours)
    deliberate = DIFFERENCES.get(case.name)
    assert found == (deliberate.facts if deliberate else {})


def test_every_deliberate_difference_is_of_a_case_that_exists() -> None:
    assert set(DIFFERENCES) <= {case.name for case in ALL}
