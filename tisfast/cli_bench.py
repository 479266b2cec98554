"""`tisfast bench`: measure a model of a server (docs/bench.md).  Top layer (cli)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from tisfast import __version__
from tisfast.bench.arguments import Files, Given, read
from tisfast.bench.asked import Asked
from tisfast.bench.compare import main as compare
from tisfast.bench.csv_output import csv_files
from tisfast.bench.files import write_text
from tisfast.bench.json_output import document, document_text, profile_export
from tisfast.bench.measure import Progress, Stop
from tisfast.bench.prepared import prepared, stoppable
from tisfast.bench.report_html import page
from tisfast.bench.results import Measurement, Run
from tisfast.bench.server_metrics import ServerMetrics
from tisfast.bench.session import look_up
from tisfast.bench.text import header, level_text, summary
from tisfast.client import Client
from tisfast.errors import ConfigError, TisError

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
        return compare(arguments[1:])
    try:
        given = read(arguments)
        sys.setswitchinterval(SWITCH_SECONDS)
        return _measure(given)
    except ConfigError as error:
        print(f"Error: {error}\nTry 'tisfast bench --help'.", file=sys.stderr)
    except TisError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("error: it was interrupted again, and nothing was waited for", file=sys.stderr)
    return WRONG


def _measure(given: Given) -> int:
    asked = given.asked
    url = str(asked.address)
    options: dict[str, Any] = {"shared_memory": False, "retries": 0, "timeout": ASK_SECONDS}
    with Client(url, headers=dict(asked.headers), **options) as client:
        model = look_up(client, asked)
        metrics = _metrics(given, client)
        stop = Stop()
        with prepared(client, asked, model, stop) as session, stoppable(stop):
            asked, session.metrics = session.asked, metrics
            session.progress = _progress(asked)
            session.on_level = partial(_print_level, asked)
            session.probe()
            print(header(asked.settings, asked.batch_size, asked.mode, model.decoupled), end="", flush=True)
            try:
                run = session.run()
            finally:
                if metrics is not None:
                    metrics.close()
    print(summary(run), end="", flush=True)
    if session.failure is not None:
        print(f"error: no further level was measured: {session.failure}", file=sys.stderr)
    _write(given.files, run)
    if session.failure is not None:
        return WRONG
    return exit_code(run, given.max_errors)


def _metrics(given: Given, client: Client) -> ServerMetrics | None:
    if given.metrics is None:
        return None
    found = ServerMetrics(client, given.metrics.url, given.metrics.interval_ms)
    found.look()
    found.start()
    return found


def _print_level(asked: Asked, level: Measurement) -> None:
    protocol = "grpc" if asked.address.grpc else "http"
    print(level_text(level, asked.settings, asked.batch_size, protocol), flush=True)


def _progress(asked: Asked) -> Callable[[Progress], None]:
    """With -v a line for each window, as it begins."""
    last = [0]

    def told(progress: Progress) -> None:
        if asked.settings.verbose and progress.trial != last[0]:
            last[0] = progress.trial
            failed = f", {progress.errors} failed until now" if progress.errors else ""
            print(f"  Pass [{progress.trial}], {progress.in_flight} requests are under way{failed}", flush=True)

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
