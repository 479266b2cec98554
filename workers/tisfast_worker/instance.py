"""One model instance, from the fork to its exit (WIRE.md, "Life of an instance", 3 to 6)."""

import atexit
import gc
import importlib.util
import os
import signal
import sys
import time

from tisfast_worker import environment, failure, limits
from tisfast_worker.batch_loop import BatchLoop
from tisfast_worker.calls import Calls
from tisfast_worker.control import ControlClosed, ControlSocket, ControlThread
from tisfast_worker.failure import WireError
from tisfast_worker.loop import Loop
from tisfast_worker.metric_store import SharedMetrics
from tisfast_worker.model import Model
from tisfast_worker.native import TF_ABI_VERSION
from tisfast_worker.plane import DataPlane
from tisfast_worker.sequence_loop import SequenceLoop, SequenceStreamLoop
from tisfast_worker.served import PROCESS
from tisfast_worker.shortage import shortage_of
from tisfast_worker.stream_loop import StreamLoop

WORKERS_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class ForkOrder:
    """What the server asked the nursery to start."""

    def __init__(self, message, fds):
        """From a fork message and its eight descriptors."""
        self.id, self.endpoint, self.token = message["id"], message["endpoint"], message["token"]
        self.env, self.threads = message["env"], message["threads"]
        if not self.endpoint.startswith("ipc:///"):
            raise WireError(f"endpoint {self.endpoint!r} is not ipc:// with an absolute path")
        self.plane_fds, self.output_fds = fds[:6], fds[6:]
        self.blas = ()  # the nursery's environment.openblas_setters


def backend_module(name):
    """The module backends/NAME.py, loaded under a name of ours: a model's own `backends` package stays importable."""
    known = "tisfast_worker.backend_" + name
    if known in sys.modules:
        return sys.modules[known]
    path = os.path.join(WORKERS_DIR, "backends", name + ".py")
    if not name.isidentifier() or not os.path.exists(path):
        raise WireError(f"this worker has no backend {name!r}")
    spec = importlib.util.spec_from_file_location(known, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[known] = module
    return module


class LoadStep:
    """Names the step of loading that fails: the `kind` of a failed message."""

    def __init__(self):
        """Before anything."""
        self.kind = "import"


def run(order, library, nursery_pid):
    """Live as the instance of `order`; returns the exit code.  Called in the forked child, with its own descriptors."""
    try:
        library.die_with_parent(signal.SIGKILL, nursery_pid)
    except ProcessLookupError:
        return 1
    _become_instance(order)
    control = ControlSocket(order.endpoint)
    control.handshake()
    control.send({"t": "hello", "id": order.id, "token": order.token, "pid": os.getpid(), "abi": TF_ABI_VERSION})
    try:
        load = control.wait_message()
        if load.get("t") == "stop":
            control.send({"t": "stopped"})
            control.drain(limits.STOPPED_FLUSH_SECONDS_MAX)
            return 0
        if load.get("t") != "load" or load.get("role") not in ("serve", "complete"):
            raise WireError("expected a load message, got {!r} of role {!r}".format(load.get("t"), load.get("role")))
        return _live(order, library, control, load)
    except ControlClosed:
        return 1  # the server has gone


def _become_instance(order):
    """Signals, descriptors, variables: what a fresh process would have been started with."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # models may start processes of their own
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides who ends
    for target, fd in zip((1, 2), order.output_fds):
        os.dup2(fd, target)
        os.close(fd)
    # Whole lines for the server's log, whatever a model prints and whatever the locale says.  New objects: the old ones
    # remember whether the nursery's descriptors could seek.
    sys.stdout = sys.__stdout__ = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    environment.set_variables(order.env, order.threads)
    environment.settle_numpy(order.threads, order.blas)
    environment.offer_to_oom_killer(environment.OOM_SCORE_LOADING)


def _live(order, library, control, load):
    """Load the model, then complete its configuration or serve it."""
    model = Model(load["model"])
    environment.name_process(model.instance)
    plane = DataPlane(library, order.plane_fds, load["model"].get("output_bytes_max", 0))
    thread = ControlThread(control, plane.channel.request_stop)
    PROCESS.model_dir, PROCESS.log, PROCESS.verbose = model.version_dir, thread.log, model.log_verbose > 0
    PROCESS.instance, PROCESS.metrics = model.instance, SharedMetrics(thread, library, plane.bell)
    _set_import_path(model)
    thread.start()
    step, begin_ns = LoadStep(), time.monotonic_ns()
    try:
        backend = backend_module(model.backend).Backend(model)
        backend.load()
        if load["role"] == "complete":
            step.kind = "complete"
            completed = {"t": "completed", "config": backend.auto_complete()}
            atexit._run_exitfuncs()  # the server kills who has completed: taking the interpreter apart takes 10 ms
            thread.finish(completed, to_be_read=True)
            return 0
        step.kind = "init"
        backend.initialize()
        loop = _loop(model, backend, plane, _tracer(thread))  # reads the files of initial states
    except BaseException as error:  # SystemExit too: leaving in initialize is a failure to load
        thread.finish(_failed(step.kind, error), to_be_read=True)
        return 1
    environment.offer_to_oom_killer(environment.OOM_SCORE_SERVING)
    _settle_garbage()
    thread.check_readiness_with(backend.unready_reason)
    took_ns = time.monotonic_ns() - begin_ns
    thread.send({"t": "ready", "load_ns": took_ns, "threads": order.threads, "arrays": backend.takes_arrays,
                 "checks": backend.has_readiness})  # fmt: skip
    PROCESS.calls = Calls(plane, model.spin_ns, loop, lambda: thread.send({"t": "calls"}))
    PROCESS.ask = thread.ask
    os.register_at_fork(after_in_child=_call_nobody)  # rings have one producer: a model's own child is none
    loop.run()
    PROCESS.calls = PROCESS.ask = None
    _finalize(backend, thread)
    thread.finish({"t": "stopped"})
    return 0


def _loop(model, backend, plane, trace):
    if model.sequences is not None:
        kind = SequenceStreamLoop if model.decoupled else SequenceLoop
        return kind(model, backend, plane, trace)
    if model.decoupled:
        return StreamLoop(model, backend, plane, trace)
    if backend.takes_arrays:
        return BatchLoop(model, backend.execute_arrays, plane, trace)
    return Loop(model, backend.execute, plane, trace)


def _call_nobody():
    PROCESS.calls = PROCESS.ask = None
    PROCESS.forked = True


def _failed(kind, error):
    """`message` is Triton's text (row 16.30), `error` its first line."""
    message = {
        "t": "failed",
        "kind": kind,
        "error": failure.last_line(error),
        "message": failure.triton_text(error),
        "traceback": failure.traceback_text(error),
        "missing": failure.missing_module(error),
    }
    shortage = shortage_of(error)
    if shortage is not None:
        message.update(kind="memory", shortage=str(shortage))
    return message


def _set_import_path(model):
    """Row 16.01: the version's folder, the model's and ours, after the interpreter's own."""
    ours = (model.version_dir, model.repository, WORKERS_DIR)
    sys.path[:] = [entry for entry in sys.path if entry not in ours] + list(ours)
    sys.argv = [os.path.join(model.version_dir, model.file)]


def _settle_garbage():
    """What is alive after loading stays: collections during service need not walk through it again and again.

    Without it, a full collection over an imported torch takes some 100 ms, in the middle of a request.
    """
    gc.collect()
    gc.freeze()


def _tracer(thread):
    """How the loop tells of an execution or a response that failed: once, with the ids of its requests."""

    def trace(ids, text, error):
        thread.post({"t": "trace", "requests": ids, "traceback": text, "error": failure.cut(error)})

    return trace


def _finalize(backend, thread):
    """Row 16.05: what finalize raises is logged, and the instance ends all the same."""
    try:
        backend.finalize()
    except BaseException as error:
        thread.log("ERROR", "finalize failed: " + (failure.traceback_text(error) or str(error)), "model.py", 0)
