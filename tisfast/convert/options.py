"""What a conversion may be told, and its bounds.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tisfast import limits
from tisfast.convert.formats import FORMATS, PRECISIONS
from tisfast.convert.trial import Verify
from tisfast.errors import BadRequest
from tisfast.repo.layout import GIVEN_NAME, is_given_name


@dataclass(frozen=True)
class Options:
    """Of a conversion; see `convert`."""

    targets: Sequence[str] | None = None
    precisions: Sequence[str] = PRECISIONS
    atol: float | None = None
    rtol: float | None = None
    max_latency_ms: float | None = None
    min_throughput: float | None = None
    max_batch_size: int = 8
    no_batch: bool = False
    concurrency: Sequence[int] = (1, 8)
    seconds: float = 1.0
    step_seconds: float = limits.CONVERT_STEP_SECONDS
    name: str | None = None
    allow_pickled: bool = False
    verify: Verify | None = None
    told: Callable[[str], None] = field(default=lambda _: None)


NUMBERS: Final = (
    ("atol", "--atol", 0, limits.CONVERT_TOLERANCE_MAX),
    ("rtol", "--rtol", 0, limits.CONVERT_TOLERANCE_MAX),
    ("max_latency_ms", "--max-latency", limits.CONVERT_LATENCY_MS_MIN, limits.CONVERT_LATENCY_MS_MAX),
    ("min_throughput", "--min-throughput", limits.CONVERT_THROUGHPUT_MIN, limits.CONVERT_THROUGHPUT_MAX),
    ("seconds", "--seconds", 0.1, limits.CONVERT_LOAD_SECONDS_MAX),
    ("step_seconds", "--step-seconds", 1, limits.CONVERT_STEP_SECONDS_MAX),
)
"""(field, flag, least, most)."""


def checked(options: Mapping[str, Any]) -> Options:
    """Raises BadRequest, which names the option."""
    known = Options.__dataclass_fields__
    unknown = [each for each in options if each not in known]
    if unknown:
        raise BadRequest(f"convert has no option {unknown[0]!r}; it has {', '.join(known)}")
    asked = Options(**options)
    for name, flag, least, most in NUMBERS:
        value = getattr(asked, name)
        if value is not None or known[name].default is not None:
            _check(flag, value, least, most)
    _check_whole("--max-batch-size", asked.max_batch_size, limits.CONVERT_BATCH_SIZE_MAX)
    for name, flag in (("targets", "--target"), ("precisions", "--precision"), ("concurrency", "--concurrency")):
        value = getattr(asked, name)
        if value is None and known[name].default is None:
            continue
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise BadRequest(f"{flag} is {value!r:.100}: give a list")
        if name != "concurrency" and (wrong := [each for each in value if not isinstance(each, str)]):
            raise BadRequest(f"{flag} has {wrong[0]!r:.100}: give names")
    for name, function in (("told", asked.told), ("verify", bool if asked.verify is None else asked.verify)):
        if not callable(function):
            raise BadRequest(f"{name} is {function!r:.100}: give a function, or leave it out")
    _check_counts(asked)
    return asked


def _check_counts(asked: Options) -> None:
    if asked.targets is not None and not asked.targets:
        raise BadRequest(f"--target names none: there are {', '.join(FORMATS)}; leave it out for all")
    if not asked.precisions:
        raise BadRequest(f"--precision names none: there are {' and '.join(PRECISIONS)}")
    if not 0 < len(asked.concurrency) <= limits.CONVERT_LOADS_MAX:
        raise BadRequest(
            f"--concurrency has {len(asked.concurrency)} numbers: give 1 to {limits.CONVERT_LOADS_MAX}, as each is a "
            "measurement of each format"
        )
    for each in asked.concurrency:
        _check_whole("--concurrency", each, limits.CONVERT_CONCURRENCY_MAX)


def check_name(name: str, flag: str, place: str = "-o") -> None:
    """Of a model: it is a folder's, and nothing else of a path.  place: says where that is.  Raises BadRequest."""
    hidden = isinstance(name, str) and name.startswith(".")
    if not isinstance(name, str) or hidden or not is_given_name(name):
        raise BadRequest(
            f"{flag} {name!r:.300} is no name of a model: {GIVEN_NAME}, and it does not begin with '.'; {place} says "
            "where its folder is written"
        )


def _check(flag: str, value: Any, least: float, most: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:  # nan, too
        raise BadRequest(f"{flag} is {value!r:.100}, and must be a number from {least:g} to {most:,g}")


def _check_whole(flag: str, value: Any, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadRequest(f"{flag} is {value!r:.100}: give a whole number from 1 to {most}")
