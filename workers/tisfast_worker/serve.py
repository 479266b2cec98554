"""Serve one model instance: load it, run its loop, let go of it (WIRE.md, "Life of an instance", 4 to 6).

The process or thread that does so is somebody else's affair: instance.py, of workers that are forked, and guest.py.
"""

import importlib.util
import os
import sys
import time

from tisfast_worker import failure, public
from tisfast_worker.backend import ArrayBackend, RequestBackend
from tisfast_worker.calls import Calls
from tisfast_worker.failure import WireError
from tisfast_worker.loop_steps import make_loop
from tisfast_worker.memory_shortage import shortage_of
from tisfast_worker.metric_store import SharedMetrics
from tisfast_worker.serving_context import ServingContext

WORKERS_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def backend_module(name, path=""):
    """The module of a backend, loaded under a name of ours: a model's own `backends` package stays importable.

    path: of one that is not in our folder `backends`.
    """
    known = "tisfast_worker.backend_" + name
    if known in sys.modules:
        return sys.modules[known]
    if path:
        public.offer()
    else:
        path = os.path.join(WORKERS_DIR, "backends", name + ".py")
        if not name.isidentifier() or not os.path.exists(path):
            raise WireError(f"this worker has no backend {name!r}")
    spec = importlib.util.spec_from_file_location(known, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[known] = module
    return module


def load_backend(model):
    """The backend of a model, which has loaded it.  Raises WireError for a backend that is none, and what it raises."""
    module = backend_module("python") if model.python_based else backend_module(model.backend, model.module)
    kind = getattr(module, "Backend", None)
    if not isinstance(kind, type) or not issubclass(kind, (ArrayBackend, RequestBackend)):
        raise WireError(
            f"backend '{model.backend}': {module.__file__} has no class Backend that is an ArrayBackend or "
            "RequestBackend of tisfast.backend"
        )
    check_fits(model, kind)
    backend = kind(model)
    backend.load()
    return backend


def check_fits(model, kind):
    """Raises WireError where a model's configuration asks for what backends of this kind cannot do."""
    if issubclass(kind, RequestBackend):
        return
    whose = f"model '{model.name}' has a backend, '{model.backend}', that takes and gives arrays"
    if model.decoupled:
        raise WireError(f"{whose}: one answer to a request, and it is decoupled")
    if model.iterative:
        raise WireError(f"{whose}: it cannot ask to be executed again, as iterative sequences do")


class ModelService:
    """One model instance from its load to its end.

    `step` names what is being done before it serves: the `kind` of a failed message.
    """

    def __init__(self, model, plane, control):
        """`control`: a control_messages.ControlMessages, what it says to the server.  Nothing is loaded yet."""
        self.model, self.backend, self.loop, self.calls = model, None, None, None
        self.step = "import"
        self._plane, self._control = plane, control
        self._began_ns = time.monotonic_ns()
        self.serving = serving = control.serving = ServingContext()
        serving.model_dir, serving.instance = model.version_dir, model.instance
        serving.whose = f"instance {model.instance} of model '{model.name}' (pid {os.getpid()})"
        serving.log, serving.verbose = control.log, model.log_verbose > 0
        serving.free_output_bytes = plane.outputs.free_bytes
        serving.metrics = SharedMetrics(control, plane.library, plane.cells)

    def initialize(self):
        """Have the backend, which is loaded, ready to execute.  Raises whatever it raises."""
        self.step = "init"
        self.backend.check()
        self.backend.initialize()
        self.loop = make_loop(self.model, self.backend, self._plane, self._trace)  # reads the files of initial states

    def run(self, threads):
        """Tell the server that it is ready, serve until told to stop, and finalize.  threads: what it was given."""
        backend, control, serving = self.backend, self._control, self.serving
        control.check_readiness_with(backend.unready_reason)
        took_ns = time.monotonic_ns() - self._began_ns
        control.send({"t": "ready", "load_ns": took_ns, "threads": threads, "arrays": backend.takes_arrays,
                    "checks": backend.has_readiness})  # fmt: skip
        calls = Calls(self._plane, self.model.spin_ns, self.loop, lambda: control.send({"t": "calls"}))
        serving.calls = self.calls = calls
        serving.ask, serving.tell = control.ask, control.send
        try:
            self.loop.run()
        finally:
            serving.end()
        self._finalize()

    def stop(self):
        """Have `run` end when what was submitted is answered.  From any thread."""
        self._plane.channel.request_stop()

    def abandon(self):
        """The server does not hear it any more: have `run` end, whatever it waits for.  From any thread."""
        self._plane.channel.request_stop()
        self._plane.completions.close()
        loop, calls = self.loop, self.calls
        if loop is not None:
            loop.abandon()
        if calls is not None:
            calls.close()

    def close(self):
        """After `run`, where the process goes on: let go of all that was the instance's."""
        self.serving.end()
        if self.calls is not None:
            self.calls.close()
        self._plane.close()
        self.serving.free_output_bytes = int
        self.backend = self.loop = self.calls = None

    def leave_child(self):
        """In a child process that the model's code has made: nothing of the instance is its own."""
        self.serving.leave_child()
        self._plane.completions.leave_child()

    def failed(self, error):
        """The message of a load that has raised: `message` is Triton's text, `error` its first line."""
        message = {
            "t": "failed",
            "kind": self.step,
            "error": failure.last_line(error),
            "message": failure.triton_text(error),
            "traceback": failure.traceback_text(error),
            "missing": failure.missing_module(error),
            "looked_in": failure.looked_in(error),
        }
        shortage = shortage_of(error)
        if shortage is not None:
            message.update(kind="memory", shortage=str(shortage))
        return message

    def _trace(self, ids, text, error, missing=""):
        """How the loop tells of an execution or a response that failed: once, with the ids of its requests, and the
        module that could not be found where that was it.
        """
        record = {"t": "trace", "requests": ids, "traceback": text, "error": failure.cut(error)}
        self._control.post(dict(record, missing=missing) if missing else record)

    def _finalize(self):
        """Call finalize; what it raises is logged, and the instance ends all the same."""
        try:
            self.backend.free()
        except BaseException as error:
            text = "finalize failed: " + (failure.traceback_text(error) or str(error))
            self._control.log("ERROR", text, "model.py", 0)
