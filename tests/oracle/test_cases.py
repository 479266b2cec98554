"""Each case of the tables, sent to both servers, is answered alike, or differs as differences.py says."""

from __future__ import annotations

import pytest

from tests.oracle.alike import differences
from tests.oracle.cases.everything import ALL
from tests.oracle.cases.table import Case
from tests.oracle.conftest import Servers
from tests.oracle.differences import DIFFERENCES


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_both_servers_answer_alike(case: Case, triton: Servers, tisfast: Servers) -> None:
    found = differences(triton.ask(case), tisfast.ask(case))
    deliberate = DIFFERENCES.get(case.name)
    assert found == (deliberate.facts if deliberate else {})


def test_every_deliberate_difference_is_of_a_case_that_exists() -> None:
    assert set(DIFFERENCES) <= {case.name for case in ALL}
