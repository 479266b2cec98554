"""What this process serves, for the few faces of triton_python_backend_utils that name no request.

`pb_utils.Logger.log_info(text)` and `pb_utils.get_model_dir()` are functions without a subject, so the process itself
must know: this is the one piece of module state in the runtime.  instance.py binds it once, after the fork; outside the
server it stays as it is here, and the log goes to standard error.
"""

import sys

from tisfast_worker.metric_store import LocalMetrics


class Process:
    """The model that this process serves, if any."""

    def __init__(self):
        """Outside the server."""
        self.model_dir = ""  # folder of the version's model.py
        self.log = print_record
        self.verbose = True
        self.instance = ""  # its name
        self.metrics = LocalMetrics()  # where MetricFamily keeps its numbers
        self.calls = None  # calls.Calls while the model executes
        self.ask = None  # the same: asks the server about models (ControlThread.ask)
        self.forked = False  # a child of the instance, made by the model's own code

FORKED = (
    "this process was forked from instance {}, and only the instance itself speaks to the server; ask from there "
    "(before the fork, or in a thread), and hand the child what came back"
)


def print_record(level, message, file, line):
    """Write one record to standard error."""
    print(f"{level} {file}:{line}] {message}", file=sys.stderr, flush=True)


PROCESS = Process()
