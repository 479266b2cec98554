"""The instance that a thread belongs to, for functions of triton_python_backend_utils that name no request.

`pb_utils.Logger.log_info(text)` and `pb_utils.get_model_dir()` are functions without a subject, so it is told by where
they are called.  A worker that was forked serves one model instance, and all of its threads are that instance's.  A
guest serves several in one process: each in a thread that has entered it, with the coroutines that are started there.
Threads that a guest starts itself belong to nobody, as all do outside the server: the log goes to standard error.
"""

import sys
from contextvars import ContextVar

from tisfast_worker.metric_store import LocalMetrics

FORKED = (
    "this process was forked from instance {}, and only the instance itself speaks to the server; ask from there "
    "(before the fork, or in a thread), and hand the child what came back"
)


def print_record(level, message, file, line, once=None):
    """Write one record to standard error; `once`: what names it among those that are logged once for all instances."""
    print(f"{level} {file}{f':{line}' if line else ''}] {message}", file=sys.stderr, flush=True)


class ServingContext:
    """One model instance, as free functions know it; as it is made, none."""

    def __init__(self):
        """Outside the server."""
        self.model_dir = ""  # folder of the version's model.py
        self.log = print_record
        self.verbose = True
        self.instance = ""  # its name
        self.whose = "a process without an instance"  # which one, for the log: its name, model and pid
        self.metrics = LocalMetrics()  # where MetricFamily keeps its numbers
        self.calls = None  # calls.Calls while the model executes
        self.ask = self.tell = None  # the same: ask and tell the server (ControlMessages.ask, .send)
        self.free_output_bytes = _none  # of the output arena
        self.forked = False  # a child of the instance, made by the model's own code

    def end(self):
        """The model executes no more."""
        self.calls = self.ask = self.tell = None

    def leave_child(self):
        """In a child process that the model's code has made: rings have one producer, and a child is none."""
        self.end()
        self.forked = True


def current():
    """The context of this thread or coroutine; else that of the process."""
    return _ENTERED.get() or _everywhere[0]


def enter(serving):
    """From now on this thread, and the coroutines started from it, are of `serving`."""
    _ENTERED.set(serving)


def become(serving):
    """From now on all threads are, but for those that have entered another one."""
    _everywhere[0] = serving


def _none():
    return 0


_ENTERED = ContextVar("tisfast-serving", default=None)
_everywhere = [ServingContext()]  # the one piece of module state in the runtime
