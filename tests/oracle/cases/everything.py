"""All tables together."""

from __future__ import annotations

from typing import Final

from tests.oracle.cases import answers, binary_requests, generate, json_requests, routes, transport
from tests.oracle.cases.table import Case

ALL: Final[list[Case]] = [
    *routes.CASES,
    *json_requests.CASES,
    *binary_requests.CASES,
    *transport.CASES,
    *answers.CASES,
    *generate.CASES,
]
assert len({case.name for case in ALL}) == len(ALL), "two cases of one name"
