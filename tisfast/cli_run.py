"""`tisfast check --run`: load all models as a server would, execute their warm-up samples, tell what it says of them.

Top layer.  The server is a process of its own, without ports; its log is read as JSON.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.errors import Internal
from tisfast.local_server import server_command

STARTED: Final = ("ready", "serving")
"""Events of the log that say that all models are loaded, or failed."""
FLAGS: Final = (
    *("--allow-http=false", "--allow-grpc=false", "--allow-metrics=false", "--exit-on-error=false"),
    *("--log-format=json", "--exit-timeout-secs=5"),
)


class Trial(NamedTuple):
    """The result of a trial.  findings: one line each, errors first; models: how many serve."""

    findings: list[str]
    models: int


def run_models(repositories: Sequence[str], files: Sequence[str], flags: Iterable[str]) -> Trial:
    """Serve these repositories and files until all models are loaded, then end.

    Raises Internal when no server starts.
    """
    arguments = [*files, *FLAGS, *flags, *(f"--model-repository={repository}" for repository in repositories)]
    with subprocess.Popen(
        server_command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as server:
        try:
            records = _records(server)
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                server.wait(limits.TRIAL_END_SECONDS_MAX)
    if not any(record.get("event") in STARTED for record in records):
        last = [str(record["message"]) for record in records if record.get("message")][-1:] or ["it said nothing"]
        raise Internal(f"the models could not be run: {last[0]}")
    found = [_finding(record) for record in records]
    loaded = {record.get("model") for record in records if "successfully loaded" in str(record["message"])}
    return Trial([line for line in dict.fromkeys(found) if line], len(loaded))


def _records(server: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The log until its end, which comes when all models are loaded: the server is told so."""
    records: list[dict[str, Any]] = []
    assert server.stdout is not None
    for line in server.stdout:
        try:
            records.append(json.loads(line))
        except ValueError:  # what a library writes before there is a log
            records.append({"message": line.rstrip(), "level": "raw"})
        if records[-1].get("event") in STARTED:
            server.send_signal(signal.SIGTERM)
    return records


def _finding(record: dict[str, Any]) -> str:
    """An error, or an output that is not what the configuration says; "" for all else."""
    if record["level"] in ("error", "critical"):
        return f"error: {record['message']}"
    return f"warning: {record['message']}" if "once" in record else ""
