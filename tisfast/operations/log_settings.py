"""The logging extension: what is logged, asked for and changed while the server runs.  Layer 4 (operations)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tisfast.errors import BadRequest, Internal, TisError, Unsupported
from tisfast.logs import FORMATS

if TYPE_CHECKING:
    from tisfast.logs import Log

SWITCHES: Final = ("log_info", "log_warning", "log_error")
VERBOSE_MAX: Final = 2**32 - 1


class UnknownLogFormat(BadRequest):
    """A log_format that is none; Triton's HTTP answer to it is 503, its gRPC answer INVALID_ARGUMENT."""


class LiveLogSettings:
    """The settings of one server's log.

    verbose_changed: called with the new log_verbose_level, for processes that decide by themselves what to say.
    """

    def __init__(self, log: Log, verbose_changed: Callable[[int], None]) -> None:
        self._log = log
        self._verbose_changed = verbose_changed

    def values(self) -> dict[str, Any]:
        """All of them, in Triton's order."""
        log = self._log
        return {
            "log_file": log.file,
            "log_info": log.info,
            "log_warning": log.warning,
            "log_error": log.error,
            "log_verbose_level": log.verbose,
            "log_format": log.format,
        }

    def update(self, changes: dict[str, Any]) -> None:
        """Change some; None leaves a setting as it is.  Nothing is changed when one of them is wrong.

        Raises Internal for a value of the wrong type (Triton's status), UnknownLogFormat, Unsupported for log_file,
        BadRequest for a name that is no setting.
        """
        wanted = {name: value for name, value in changes.items() if value is not None}
        for name, value in wanted.items():
            _check(name, value)
        before = self._log.verbose
        self._log.change(**{_FIELDS[name]: value for name, value in wanted.items()})
        if self._log.verbose != before:
            self._verbose_changed(self._log.verbose)


_FIELDS: Final = {
    "log_info": "info",
    "log_warning": "warning",
    "log_error": "error",
    "log_verbose_level": "verbose",
    "log_format": "format",
}


def _check(name: str, value: object) -> None:
    problem = _problem(name, value)
    if problem is not None:
        raise problem


def _problem(name: str, value: object) -> TisError | None:
    if name == "log_file":
        return Unsupported("log file location can not be updated through network protocol")
    if name in SWITCHES:
        good = isinstance(value, bool)
        return None if good else Internal(f"attempt to access JSON non-boolean as boolean: {name} is {value!r:.60}")
    if name == "log_verbose_level":
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= VERBOSE_MAX
        text = "attempt to access JSON non-unsigned-integer as unsigned-integer"
        return None if good else Internal(f"{text}: {name} is {value!r:.60}")
    if name != "log_format":
        known = ", ".join(["log_file", *_FIELDS])
        return BadRequest(f"unknown log setting {name!r:.60}; the settings are {known}")
    if not isinstance(value, str):
        return Internal(f"attempt to access JSON non-string as string: {name} is {value!r:.60}")
    return None if value in FORMATS else UnknownLogFormat(f"invalid argument for --log_format, got: {value:.60}")
