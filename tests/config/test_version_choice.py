"""Which versions of a model are served: each policy, of versions that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.loading import load
from tisfast.config import schema, versions
from tisfast.config.versions import VersionPolicy

PRESENT = st.lists(st.integers(1, 50), max_size=8)


@pytest.mark.parametrize(
    ("text", "policy", "shown"),
    [
        ("", VersionPolicy("latest", 1), "latest { num_versions: 1 }"),
        ("version_policy { }", VersionPolicy("latest", 1), "latest { num_versions: 1 }"),
        ("version_policy { latest { } }", VersionPolicy("latest", 0), "latest { num_versions: 0 }"),
        ("version_policy { latest { num_versions: 3 } }", VersionPolicy("latest", 3), "latest { num_versions: 3 }"),
        ("version_policy { all { } }", VersionPolicy("all", 0), "all { }"),
        (
            "version_policy { specific { versions: [ 7, 2, 7 ] } }",
            VersionPolicy("specific", 0, (2, 7)),
            "specific { versions: [2, 7] }",
        ),
        ("version_policy { specific { } }", VersionPolicy("specific", 0), "specific { versions: [] }"),
    ],
)
def test_each_policy_becomes_a_value(text, policy, shown):
    assert load(text).version_policy == policy and str(policy) == shown


def test_a_message_that_was_not_normalised_has_the_latest():
    assert versions.read(schema.model_config()) == VersionPolicy("latest", 1)


@given(PRESENT, st.integers(0, 10))
def test_the_latest_are_the_highest_numbers(present, count):
    chosen = VersionPolicy("latest", count).choose(present)
    left = set(present) - set(chosen)
    assert len(chosen) == min(count, len(set(present))) and list(chosen) == sorted(set(chosen))
    assert all(version < least for version in left for least in chosen[:1])


@given(PRESENT)
def test_all_are_all(present):
    assert set(VersionPolicy("all").choose(present)) == set(present)


@given(PRESENT, PRESENT)
def test_specific_ones_are_those_that_are_there(present, wanted):
    chosen = VersionPolicy("specific", specific=tuple(wanted)).choose(present)
    assert set(chosen) == set(present) & set(wanted) and list(chosen) == sorted(chosen)
