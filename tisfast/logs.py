"""Log lines in Triton's two forms and as JSON.  Layer 0: knows records of the standard library, and nothing of ours.

A record may carry `facts` (model, version, instance, request ids: fields of the JSON form), `source` ((file, line) of
the user code that spoke, in place of ours), `traceback` (text, shown indented), `indented` (so are the lines of the
message after its first), `table` (shown as it stands) and `always` (shown whatever --log-info and its siblings say).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    TextHandler = logging.StreamHandler[TextIO]
else:
    TextHandler = logging.StreamHandler  # no generic class before Python 3.11

FORMATS: Final = ("default", "ISO8601", "json")
LETTERS: Final = {
    logging.DEBUG: "V",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "E",
}
NAMES: Final = {
    logging.DEBUG: "verbose",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}


def _place(record: logging.LogRecord) -> tuple[str, int]:
    """0: the line is not known."""
    source: tuple[str, int] | None = getattr(record, "source", None)
    return source or (record.filename, record.lineno)


def _written_place(record: logging.LogRecord) -> str:
    file, line = _place(record)
    return f"{file}:{line}" if line else file


def _traceback(record: logging.LogRecord) -> str:
    text: str = getattr(record, "traceback", "")
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else text


def _escaped_lines(text: str) -> str:
    """Every line indented and escaped, so that none looks like a record.  Quotes stay as they are.

    All lines at once, as a model may print thousands: json.dumps leaves no raw zero byte, which keeps the backslashes
    of the text apart from its own.
    """
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace("\\\\", "\0")
    return "    " + escaped.replace("\\n", "\n    ").replace('\\"', '"').replace("\0", "\\\\")


class LineFormatter(logging.Formatter):
    """Triton's line: letter, time, pid, file:line] "message", control characters escaped."""

    def __init__(self, *, iso8601: bool) -> None:
        super().__init__()
        self._iso8601 = iso8601

    def format(self, record: logging.LogRecord) -> str:
        """One line, except for tables."""
        letter = LETTERS.get(record.levelno, "I")
        at = time.gmtime(record.created)
        if self._iso8601:
            head = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', at)} {letter} {record.process}"
        else:
            micros = int(record.created * 1e6) % 1_000_000
            head = f"{letter}{time.strftime('%m%d %H:%M:%S', at)}.{micros:06d} {record.process}"
        head += f" {_written_place(record)}]"
        if getattr(record, "table", False):
            return f"{head} \n{record.getMessage()}\n"
        message, below = record.getMessage(), _traceback(record).rstrip()
        if getattr(record, "indented", False):
            message, _, below = message.partition("\n")
        text = f"{head} {json.dumps(message, ensure_ascii=False)}"
        return f"{text}\n{_escaped_lines(below)}" if below else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, file, line, message, and the record's facts."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        file, line = _place(record)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{at}.{int(record.created * 1e6) % 1_000_000:06d}Z",
            "level": NAMES.get(record.levelno, "info"),
            "logger": record.name,
            "pid": record.process,
            "file": file,
            **({"line": line} if line else {}),
            "message": record.getMessage(),
        }
        if _traceback(record):
            fields["traceback"] = _traceback(record)
        fields.update(getattr(record, "facts", None) or {})
        return json.dumps(fields, ensure_ascii=False, default=str)


class Switches(logging.Filter):
    """Triton's four switches: --log-info, --log-warning, --log-error, and --log-verbose above 0."""

    def __init__(self, *, verbose: int, info: bool, warning: bool, error: bool) -> None:
        super().__init__()
        self.turn(verbose=verbose, info=info, warning=warning, error=error)

    def turn(self, *, verbose: int, info: bool, warning: bool, error: bool) -> None:
        """From now on."""
        self.verbose, self.info, self.warning, self.error = verbose, info, warning, error
        self.level = logging.DEBUG if verbose > 0 else logging.INFO
        self._on = {
            logging.DEBUG: verbose > 0,
            logging.INFO: info,
            logging.WARNING: warning,
            logging.ERROR: error,
            logging.CRITICAL: error,
        }

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is wanted."""
        return getattr(record, "always", False) or self._on.get(record.levelno, True)


class Losable(logging.Handler):
    """Where it writes may go away (a closed pipe, a full disk): said once on stderr, not for each line."""

    _lost = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by `emit` while its exception is being handled."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._lost:
            self._lost = True
            with contextlib.suppress(OSError):
                print(f"tisfast: log lines are being lost: {error}", file=sys.stderr)


class FileHandler(Losable, logging.FileHandler):
    """Appends to a file."""


class StandardHandler(Losable, TextHandler):
    """Writes to whatever sys.stdout or sys.stderr is at that moment: a progress bar puts itself in their place."""

    def __init__(self, name: str) -> None:
        self._stream_name = name
        super().__init__()

    @property
    def stream(self) -> TextIO:
        """The stream of now."""
        found: TextIO = getattr(sys, self._stream_name)
        return found

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """The base class sets one; it is never asked for."""


def formatter(name: str) -> logging.Formatter:
    """The formatter called `name`, one of FORMATS."""
    return JsonFormatter() if name == "json" else LineFormatter(iso8601=name == "ISO8601")


class Log:
    """The log of "tisfast"; `change` works at once.  file: "" for stdout and stderr."""

    def __init__(self, switches: Switches, handlers: list[logging.Handler], format_name: str, file: str) -> None:
        self.verbose, self.info = switches.verbose, switches.info
        self.warning, self.error = switches.warning, switches.error
        self.format = format_name
        self.file = file
        self._switches = switches
        self._handlers = handlers

    def change(
        self,
        *,
        verbose: int | None = None,
        info: bool | None = None,
        warning: bool | None = None,
        error: bool | None = None,
        format: str | None = None,
    ) -> None:
        """Change what is not None.  format: one of FORMATS."""
        self.verbose = self.verbose if verbose is None else verbose
        self.info = self.info if info is None else info
        self.warning = self.warning if warning is None else warning
        self.error = self.error if error is None else error
        self._switches.turn(verbose=self.verbose, info=self.info, warning=self.warning, error=self.error)
        logging.getLogger("tisfast").setLevel(self._switches.level)
        if format is not None:
            self.format = format
            for handler in self._handlers:
                handler.setFormatter(formatter(format))


def configure(switches: Switches, format_name: str, file: str = "") -> Log:
    """Send everything logged under "tisfast" to `file`, or errors and warnings to stderr and the rest to stdout.

    Raises OSError when the file cannot be opened for appending.
    """
    handlers: list[logging.Handler]
    if file:
        handlers = [FileHandler(file, encoding="utf-8")]
    else:
        low, high = StandardHandler("stdout"), StandardHandler("stderr")
        low.addFilter(lambda record: record.levelno < logging.WARNING)
        high.setLevel(logging.WARNING)
        handlers = [low, high]
    root = logging.getLogger("tisfast")
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        handler.setFormatter(formatter(format_name))
        handler.addFilter(switches)
        root.addHandler(handler)
    root.setLevel(switches.level)
    root.propagate = False
    return Log(switches, handlers, format_name, file)
