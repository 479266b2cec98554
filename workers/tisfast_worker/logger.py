"""pb_utils.Logger (row 16.16): lines of the server's log, with the model's file and line."""

import os
import sys
from enum import IntEnum

from tisfast_worker.served import PROCESS


class LogLevel(IntEnum):
    """Severity of a log line."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_WIRE = {LogLevel.INFO: "INFO", LogLevel.WARNING: "WARN", LogLevel.ERROR: "ERROR", LogLevel.VERBOSE: "VERBOSE"}


class Logger:
    """Functions to write to the server's log; never blocks, and outside the server writes to standard error."""

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    def __init__(self):
        """There are no loggers to make: raises TypeError."""
        raise TypeError("Logger: No constructor defined! Call pb_utils.Logger.log_info(message) and its siblings.")

    @staticmethod
    def log(message, level=LogLevel.INFO):
        """Write one record of the given level."""
        _write(message, level)

    @staticmethod
    def log_info(message):
        """Write one INFO record."""
        _write(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message):
        """Write one WARNING record."""
        _write(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message):
        """Write one ERROR record."""
        _write(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message):
        """Write one record that is seen only with --log-verbose."""
        _write(message, LogLevel.VERBOSE)


def _write(message, level):
    if not isinstance(message, str) or not isinstance(level, LogLevel):
        raise TypeError(
            f"Logger.log(message: str, level: Logger.LogLevel): got a {type(message).__name__} and a "
            f"{type(level).__name__}"
        )
    if level is LogLevel.VERBOSE and not PROCESS.verbose:
        return
    caller = sys._getframe(2)
    PROCESS.log(_WIRE[level], message, os.path.basename(caller.f_code.co_filename), caller.f_lineno)
