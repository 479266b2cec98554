"""Patterns of forwarded headers: RE2's syntax where it is installed, and nothing that is read in another way without."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

import sys

import pytest

from tisfast.errors import ConfigError
from tisfast.operations.header_forward import HeaderForward

FLAG = "http-header-forward-pattern"
PAIRS = [("my-header", "v"), ("My-Header-2", "w"), ("other", "x")]


def forwarded(pattern, ignore_case=False):
    return list(HeaderForward(pattern, flag=FLAG, ignore_case=ignore_case).parameters(PAIRS))


@pytest.fixture
def without_re2(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)


@pytest.mark.parametrize("pattern", ["(?-i)my-header", r"\pLy-header$", r"my-header\z", "[[:alpha:]]+-header$"])
def test_the_syntax_is_that_of_re2(pattern):
    pytest.importorskip("re2")
    assert forwarded(pattern) == ["my-header"]


def test_flags_of_the_pattern_win():
    pytest.importorskip("re2")
    assert forwarded("(?-i)my-header", ignore_case=True) == ["my-header"]


@pytest.mark.parametrize("pattern", ["(my", "*", "[a", r"(m)\1", "(?=my)", "m++"])
def test_what_is_no_pattern_of_re2_is_refused(pattern):
    pytest.importorskip("re2")
    with pytest.raises(ConfigError, match=f"--{FLAG}=.* is not a regular expression: .*use RE2's syntax"):
        forwarded(pattern)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^my-", ["my-header"]), ("(?i)^my-", ["my-header", "My-Header-2"]), ("(?:m|M)y-[a-zA-Z]+(-\\d{1,2})$", ["My-Header-2"]),
        (r"^[^\d\-]+$", ["other"]), ("(?P<all>.*)", [name for name, _ in PAIRS]),
    ],
)  # fmt: skip
def test_what_both_read_alike_needs_no_re2(without_re2, pattern, found):
    assert forwarded(pattern) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?-i)my",
        r"\pL",
        r"y\z",
        r"y\Z",
        "[[:alpha:]]",
        "m++",
        "(?=m)",
        r"(m)\1",
        "m{,3}",
        r"[\pL]",
        r"\Qm\E",
        "(?#c)m",
        "[m",
    ],
)
def test_without_re2_nothing_is_read_in_another_way(without_re2, pattern):
    with pytest.raises(ConfigError, match=r"needs RE2, which is not installed.*pip install 'tisfast\[re2\]'"):
        forwarded(pattern)


@pytest.mark.parametrize("pattern", ["(my", "*"])
def test_without_re2_what_is_no_pattern_is_refused_too(without_re2, pattern):
    with pytest.raises(ConfigError, match="is not a regular expression"):
        forwarded(pattern)
