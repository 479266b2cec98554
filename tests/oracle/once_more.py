"""The real Triton is the reference, and not what is tested: a test that fails by its fault is run once more.

By its fault is a failure with which it has crashed, hangs or has not started, and any failure of a test that is marked
`reference`: its only subject is the real Triton.  The second run has servers of its own, and what it says is final.
Never run again is what fails otherwise, what has no real Triton in it, and what fails while one of ours is not well.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from perf.oracle.server import Server, StartFailed

AGAIN: Final = "again"
"""The outcome of a first run that does not count."""


class Watch:
    """Of one run of a test.  left_unwell: of servers, before it; fault: the real Triton's, "" for none."""

    def __init__(self) -> None:
        self.left_unwell = Counter(Server.left_unwell)
        self.fault = ""


WATCH: Final = pytest.StashKey[Watch]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test, and a second time where the first says nothing of us; its first failure is reported as AGAIN."""
    if item.get_closest_marker("oracle") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = _run(item, nextitem)
    fault, first = item.stash[WATCH].fault, next((report for report in reports if report.failed), None)
    if fault and first is not None:
        item.session._setupstate.teardown_exact(None)  # all fixtures, whatever their scope: they hold the servers
        first.outcome = AGAIN  # type: ignore[assignment]
        first.user_properties.append((AGAIN, fault))
        reports = [first, *_run(item, nextitem)]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    item.stash[WATCH] = Watch()
    return runtestprotocol(item, log=False, nextitem=nextitem)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Look whose fault a failure is, while the servers of the test still run."""
    watch = item.stash.get(WATCH, None)
    if watch is not None and call.excinfo is not None and call.when != "teardown":
        watch.fault = _fault(item, call.excinfo.value, watch.left_unwell)


def _fault(item: pytest.Item, error: BaseException, left_unwell: Counter[Any]) -> str:
    """What the real Triton has done; nothing where the failure is to be looked at as one of ours."""
    unwell = Counter(Server.left_unwell)
    unwell.subtract(left_unwell)
    unwell.update(server.kind for server in Server.running if not server.well())
    if _of_ours_only(item) or unwell["tisfast"] > 0:
        return ""
    if isinstance(error, StartFailed):
        return "it did not start" if error.kind == "triton" else ""
    if unwell["triton"] > 0:
        return "it has crashed, or does not answer"
    return "it is the only subject" if item.get_closest_marker("reference") else ""


def _of_ours_only(item: pytest.Item) -> bool:
    """Whether no real Triton has a part in it, though one may run beside it for other tests."""
    if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "tisfast" in item.callspec.params.values():
        return True
    names = getattr(item, "fixturenames", ())
    return "tisfast" in names and "triton" not in names


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """A letter and a word for a first run that does not count."""
    outcome: str = report.outcome
    return (AGAIN, "A", ("AGAIN", {"yellow": True})) if outcome == AGAIN else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The first failures of what was run once more."""
    reports = terminalreporter.stats.get(AGAIN, [])
    if reports:
        terminalreporter.section("run once more, as the real Triton was at fault", yellow=True)
    for report in reports:
        terminalreporter.write_line(f"AGAIN {report.nodeid}: {dict(report.user_properties)[AGAIN]}", yellow=True)
        terminalreporter.write_line(report.longreprtext)
