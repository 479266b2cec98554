"""pb_utils.Logger: lines of the server's log, with the model's file and line."""

import os
import sys
from enum import IntEnum

from tisfast_worker import arguments
from tisfast_worker.serving_context import current


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


def keep_levels_of_logging():
    """Send records of `logging` that no handler of the model takes to the server's log, with level and place.

    Python would write the bare text to standard error.  Called when the model's code is loaded: who imports `logging`
    later keeps Python's way.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return

    class ServerLog(logging.Handler):
        """In place of logging.lastResort."""

        def emit(self, record):
            """To the server."""
            level = "ERROR" if record.levelno >= logging.ERROR else "WARN"
            current().log(level, self.format(record), record.filename, record.lineno)

    logging.lastResort = ServerLog(logging.WARNING)


def _write(message, level):
    message = arguments.text("Logger.log()", "message", message)
    if not isinstance(level, LogLevel):
        raise arguments.wrong("Logger.log()", "level", "one of Logger's levels, as Logger.INFO", level)
    serving = current()
    if level is LogLevel.VERBOSE and not serving.verbose:
        return
    caller = sys._getframe(2)
    serving.log(_WIRE[level], message, os.path.basename(caller.f_code.co_filename), caller.f_lineno)
