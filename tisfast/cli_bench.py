"""`tisfast bench`: measure a model of a server (docs/bench.md).  Top layer (cli)."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from tisfast import __version__
from tisfast.bench.against import Against
from tisfast.bench.arguments import Files, Given, read
from tisfast.bench.asked import Asked
from tisfast.bench.calibration import calibrate
from tisfast.bench.capture import main as capture
from tisfast.bench.compare import compare, report
from tisfast.bench.compare import main as compare_files
from tisfast.bench.csv_output import csv_files
from tisfast.bench.documents import own_run
from tisfast.bench.files import is_stdout, is_stream, write_text
from tisfast.bench.hints import hint, speaks_tls
from tisfast.bench.json_output import document, document_text, profile_export
from tisfast.bench.live import Live, live_on
from tisfast.bench.measure import Progress
from tisfast.bench.openmetrics import openmetrics
from tisfast.bench.parts import mixed_session
from tisfast.bench.prepared import prepared, stoppable
from tisfast.bench.report_html import page
from tisfast.bench.results import Measurement, Run
from tisfast.bench.server_metrics import ServerMetrics
from tisfast.bench.session import Session, look_up
from tisfast.bench.text import header, level_text, summary
from tisfast.bench.tracing import traced
from tisfast.bench.versus import Versus
from tisfast.client import Client, TimedOut
from tisfast.errors import ConfigError, TisError, Unavailable

GOOD: Final = 0
ERRORS: Final = 1
"""More requests failed than --max-errors."""
UNSTABLE: Final = 2
NO_ANSWERS: Final = 3
WRONG: Final = 99
"""As perf_analyzer: the command line, no server, no such model."""
SWITCH_SECONDS: Final = 0.0001
"""The threads that read statistics and metrics give the load's thread its turn after so long, not after 5 ms."""
ASK_SECONDS: Final = 30.0
"""That a call which is no inference may take."""


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code."""
    if arguments[:1] == ["compare"]:
        return compare_files(arguments[1:])
    if arguments[:1] == ["capture"]:
        return capture(arguments[1:])
    try:
        given = read(arguments)
        sys.setswitchinterval(SWITCH_SECONDS)
        return _measure(given)
    except ConfigError as error:
        print(f"Error: {error}\nTry 'tisfast bench --help'.", file=sys.stderr)
    except TisError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("error: it was interrupted, and nothing was waited for", file=sys.stderr)
    return WRONG


def _measure(given: Given) -> int:
    if given.against is not None and given.second is not None:
        return _measure_both(given, given.second, given.against)
    with ExitStack() as held:
        session = _session(given, held)
        asked, shown = session.asked, _shown(given, held)
        with stoppable(shown.say) as stop:
            session.stop = stop
            session.progress = _progress(asked, shown)
            session.on_level = partial(_print_level, asked, shown)
            _prove(session, given, shown)
            shown.write(_header(session))
            run = session.run()
    shown.write(summary(run))
    if session.failure is not None:
        print(f"error: no further level was measured: {session.failure}", file=sys.stderr)
    _write(given.files, run)
    shown.check()
    if session.failure is not None:
        return WRONG
    return exit_code(run, given.max_errors)


def _measure_both(given: Given, second: Given, against: Against) -> int:
    """Two servers by turns; the second is judged."""
    with ExitStack() as held:
        sessions = _session(given, held), _session(second, held)
        versus, shown = Versus(*sessions, against.pairs), _shown(given, held)
        with stoppable(shown.say) as stop:
            for session in sessions:
                session.stop, session.progress = stop, shown.live.tell
                _prove(session, given, shown)
            versus.on_level = partial(_print_both, sessions, shown)
            shown.write(_header(sessions[0]))
            runs = versus.run()
    saved = [own_run(run.target.url, document(run)) for run in runs]
    rows = compare([saved[0]], [saved[1]], against.margin, paired=True)
    table = io.StringIO()
    code = report([saved[0]], [saved[1]], rows, against.fail_above, table)
    shown.write(table.getvalue())
    if versus.failure is not None:
        print(f"error: no further level was measured: {versus.failure}", file=sys.stderr)
    _write(given.files, runs[0])
    _write(beside(given.files), runs[1])
    shown.check()
    if versus.failure is not None:
        return WRONG
    return next((each for each in (exit_code(run, given.max_errors) for run in runs) if each), code)


class Shown:
    """Standard output (standard error, where a file takes that), and the live line that gives way to it.

    When it is gone (a pipe that is closed, a disk that is full) the run goes on where files are wanted.
    """

    def __init__(self, live: Live, stream: TextIO, *, goes_on: bool) -> None:
        self.live, self._stream, self._goes_on = live, stream, goes_on
        self._failure: OSError | None = None

    def write(self, text: str) -> None:
        """At once.  Raises what `check` does where nothing but this text is wanted."""
        self.say(text, end="")
        if not self._goes_on:
            self.check()

    def say(self, text: str, end: str = "\n") -> None:
        """As `write`, but raises nothing: for a signal's handler."""
        if self._failure is not None:
            return
        try:
            with self.live.hidden():
                print(text, end=end, flush=True, file=self._stream)
        except OSError as error:
            self._failure = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # what is left is written at the end

    def check(self) -> None:
        """Raises BrokenPipeError, or Unavailable with the reason, when not all could be written."""
        error = self._failure
        if isinstance(error, BrokenPipeError):
            raise error
        if error is not None:
            raise Unavailable(f"standard output could not be written ({error.strerror}): what was to be shown is lost")


def _header(session: Session) -> str:
    asked = session.asked
    return header(asked.settings, asked.batch_size, asked.mode, session.model.decoupled, kind=asked.kind)


def _prove(session: Session, given: Given, shown: Shown) -> None:
    """One request goes well; with --calibrate it is known how many the client can do."""
    try:
        session.probe()
    except TisError as error:
        asked = session.asked  # of OpenAI's endpoints this is what first talks to the server
        plain = asked.endpoint and asked.tls is None and "closed the connection" in error.message
        more = speaks_tls(asked.address) if plain else ""
        if more:
            raise Unavailable(error.message + more) from None
        raise
    if given.calibrate and not session.stop.requested:
        session.most_requests = most = calibrate(session)
        what = f"{most:.0f} such requests a second of a core ({1e6 / most:.1f} usec each)"
        shown.write(f"The client can do {what} to {session.asked.address}\n")


def _shown(given: Given, held: ExitStack) -> Shown:
    """held: ends its live line."""
    live = live_on(sys.stderr, os.environ, given.asked.batch_size) if given.live else Live(None)
    held.callback(live.close)
    names = given.files.names()
    return Shown(live, sys.stderr if any(map(is_stdout, names)) else sys.stdout, goes_on=bool(names))


def _print_both(sessions: Sequence[Session], shown: Shown, first: Measurement, second: Measurement) -> None:
    for session, level in zip(sessions, (first, second), strict=True):
        shown.write(f"{session.asked.address}\n")
        _print_level(session.asked, shown, level)


def beside(files: Files) -> Files:
    """The files of the second server: `.vs` before the ending of the first one's.  A stream takes both."""

    def named(path: str) -> str:
        return str(Path(path).with_suffix(f".vs{Path(path).suffix}")) if path and not is_stream(path) else path

    return files._replace(
        csv=named(files.csv), json=named(files.json), report=named(files.report), openmetrics=named(files.openmetrics)
    )


def _session(given: Given, held: ExitStack) -> Session:
    """One server: it was asked about the model, and the requests are made.  held: ends what belongs to it."""
    asked = given.asked
    options: dict[str, Any] = {"shared_memory": False, "retries": 0, "timeout": ASK_SECONDS}
    if asked.tls is not None:
        options["tls"] = asked.tls
    client = held.enter_context(Client(str(asked.address), headers=dict(asked.headers), **options))
    try:
        mixed = mixed_session(asked, client) if asked.several else None
        model = look_up(client, asked) if mixed is None else mixed.model
    except TimedOut:
        raise Unavailable(
            f"{asked.address} takes connections, and did not answer a call about the model within {ASK_SECONDS:g} s: "
            "is it that server, and does it still serve?"
        ) from None
    except TisError as error:
        more = hint(error, asked.tls, asked.address)
        if more:
            raise Unavailable(error.message + more) from None
        raise
    metrics = _metrics(given, client)
    if metrics is not None:
        held.callback(metrics.close)
    session = mixed if mixed is not None else held.enter_context(prepared(client, asked, model))
    session.metrics = metrics
    held.enter_context(traced(client, asked.tracing))
    return session


def _metrics(given: Given, client: Client) -> ServerMetrics | None:
    if given.metrics is None:
        return None
    found = ServerMetrics(client, given.metrics.url, given.metrics.interval_ms)
    try:
        found.look()
    except TisError as error:
        raise Unavailable(
            f"--collect-metrics: the server's page of metrics cannot be read: {error.message}; name it with "
            "--metrics-url HOST:PORT/metrics, or leave --collect-metrics out"
        ) from None
    found.start()
    return found


def _print_level(asked: Asked, shown: Shown, level: Measurement) -> None:
    protocol = "grpc" if asked.address.grpc else "http"
    shown.write(level_text(level, asked.settings, asked.batch_size, protocol) + "\n")


def _progress(asked: Asked, shown: Shown) -> Callable[[Progress], None]:
    """The live view, and with -v a line for each window, as it begins."""
    last = [0]

    def told(progress: Progress) -> None:
        shown.live.tell(progress)
        if asked.settings.verbose and progress.trial != last[0]:
            last[0] = progress.trial
            failed = f", {progress.errors} failed until now" if progress.errors else ""
            shown.write(f"  Pass [{progress.trial}], {progress.in_flight} requests are under way{failed}\n")

    return told


def _write(files: Files, run: Run) -> None:
    """All that are asked for.  Raises what hindered the first one that could not be written, behind the others."""
    failures: list[TisError] = []
    for path, text in _texts(files, run):
        try:
            write_text(path, text)
        except TisError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _texts(files: Files, run: Run) -> Iterator[tuple[str, Iterable[str]]]:
    if files.csv:
        yield from csv_files(files.csv, run, verbose=files.verbose_csv).items()
    if files.export:
        yield files.export, profile_export(run, __version__)
    if files.json:
        yield files.json, document_text(run)
    if files.report:
        yield files.report, page(document(run))
    if files.openmetrics:
        yield files.openmetrics, openmetrics(run)


def exit_code(run: Run, max_errors: int) -> int:
    """What a script learns of it."""
    if not any(each.completed for each in run.levels):
        print("No valid requests recorded within time interval. Please use a larger time window.", file=sys.stderr)
        return NO_ANSWERS
    if sum(each.errors.count for each in run.levels) > max_errors:
        return ERRORS
    only = run.levels[0] if len(run.levels) == 1 else None
    if only is not None and not only.stable and not only.interrupted:
        return UNSTABLE
    return GOOD
