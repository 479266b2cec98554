"""All tables together."""

from __future__ import annotations

from typing import Final

from tests.oracle.cases import (
    answers,
    binary_requests,
    classes,
    generate,
    json_requests,
    regions,
    routes,
    sequences,
    settings,
    transport,
)
from tests.oracle.cases.table import Case

ALL: Final[list[Case]] = [
    *routes.CASES,
    *json_requests.CASES,
    *binary_requests.CASES,
    *transport.CASES,
    *answers.CASES,
    *settings.CASES,
    *classes.CASES,
    *regions.CASES,
    *generate.CASES,
    *sequences.CASES,
]
assert len({case.name for case in ALL}) == len(ALL), "two cases of one name"
