"""A process that is one model instance, from the fork to its exit (WIRE.md, "Life of an instance", 3 to 6)."""

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
import traceback

from tisfast_worker import limits, process_setup, serving_context
from tisfast_worker.control import ControlSocket, ControlThread
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.cuda import DeviceLost
from tisfast_worker.data_plane import DataPlane
from tisfast_worker.failure import WireError
from tisfast_worker.logger import keep_levels_of_logging
from tisfast_worker.model import Model
from tisfast_worker.native import TF_ABI_VERSION
from tisfast_worker.serve import WORKERS_DIR, ModelService, load_backend


class ForkOrder:
    """The server's order to start an instance."""

    def __init__(self, message, fds):
        """From a fork message and its eight descriptors."""
        self.id, self.endpoint, self.token = message["id"], message["endpoint"], message["token"]
        self.env, self.threads = message["env"], message["threads"]
        if not self.endpoint.startswith("ipc:///"):
            raise WireError(f"endpoint {self.endpoint!r} is not ipc:// with an absolute path")
        self.plane_fds, self.output_fds = fds[:7], fds[7:]
        self.blas = ()  # the nursery's process_setup.thread_setters


def run(order, library, nursery_pid):
    """Live as the instance of `order`; returns the exit code.  Called in the forked child, with its own descriptors."""
    try:
        library.die_with_parent(signal.SIGKILL, nursery_pid)
    except ProcessLookupError:
        return 1
    _become_instance(order, library)
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


def _become_instance(order, library):
    """Signals, descriptors, variables: what a fresh process would have been started with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # models may start processes of their own
    # These reach all processes of a server, by a terminal or by systemd; the server decides who ends, and when.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Processes that the model starts are ended by SIGTERM, as ever.  Of what is done here Python knows nothing: a model
    # that puts back what it has found there is ended by it, too, and what it starts then does not inherit to ignore it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    library.ignore_signal(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for target, fd in zip((1, 2), order.output_fds):
        os.dup2(fd, target)
        os.close(fd)
    # Whole lines for the server's log, whatever a model prints and whatever the locale says.  New objects: the old ones
    # remember whether the nursery's descriptors could seek.
    sys.stdout = sys.__stdout__ = open(1, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    process_setup.set_variables(order.env, order.threads)
    process_setup.settle_numpy(order.threads, order.blas)
    process_setup.offer_to_oom_killer(process_setup.OOM_SCORE_LOADING)


def _live(order, library, control, load):
    """Load the model, then complete its configuration or serve it."""
    model = Model(load["model"])
    model.threads, model.serves = order.threads, load["role"] == "serve"
    process_setup.name_process(model.instance)
    plane = DataPlane(library, order.plane_fds, load["model"].get("output_bytes_max", 0))
    thread = ControlThread(control, plane.channel.request_stop)
    service = ModelService(model, plane, thread)
    serving_context.become(service.serving)
    _set_import_path(model)
    thread.start()
    try:
        service.backend = load_backend(model)
        keep_levels_of_logging()
        if load["role"] == "complete":
            service.step = "complete"
            completed = {"t": "completed", "config": service.backend.complete()}
            atexit._run_exitfuncs()  # the server kills who has completed: taking the interpreter apart takes 10 ms
            thread.finish(completed, to_be_read=True)
            return 0
        service.initialize()
    except BaseException as error:  # SystemExit too: leaving in initialize is a failure to load
        thread.finish(service.failed(error), to_be_read=True)
        return 1
    process_setup.offer_to_oom_killer(process_setup.OOM_SCORE_SERVING)
    _settle_garbage()
    os.register_at_fork(after_in_child=service.serving.leave_child)
    try:
        service.run(order.threads)
    except DeviceLost as error:  # all is answered, and nobody's code is wrong: no traceback
        _leave(thread, f"{service.serving.whose} ends, as its process can use the GPU no more: {error}")
    except BaseException:
        if service.serving.forked:
            raise  # a child of the model's, which ends as it will
        _leave(thread, f"{service.serving.whose} ends, as it can serve no more: {traceback.format_exc()}")
    thread.finish({"t": "stopped"})
    return 0


def _leave(thread, why):
    """End with these words: threads of the model's own would keep the process, and libraries may wait for the GPU.

    Nothing that the model has made of its process prevents that.  What it put in place of stdout may wait for ever, and
    then the kernel ends the process.
    """
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, limits.LAST_STEPS_SECONDS_MAX)
        _try(lambda: thread.log("ERROR", why, "instance.py", 0))
        _try(_end_children)
        # Who answers this has read all that was said before.
        _try(lambda: thread.ask({"t": "context", "request": 0}, limits.STOPPED_FLUSH_SECONDS_MAX))
        for name in ("stderr", "__stderr__", "stdout", "__stdout__"):  # last: these may wait
            _try(lambda name=name: getattr(sys, name).flush())
        _try(lambda: ctypes.CDLL(None).fflush(None))  # what libraries have printed
    finally:
        os._exit(1)


def _try(step):
    """The next step is tried all the same."""
    with contextlib.suppress(BaseException):
        step()


def _end_children():
    """The processes that the model has started with multiprocessing, those too that do not heed a SIGTERM."""
    processes = sys.modules.get("multiprocessing")
    children = processes.active_children() if processes is not None else ()
    for child in children:
        _try(child.terminate)
    until = time.monotonic() + limits.CHILDREN_END_SECONDS_MAX
    for child in children:
        _try(lambda child=child: child.join(max(until - time.monotonic(), 0)))
        _try(child.kill)


def _set_import_path(model):
    """The version's folder, the model's and ours, after the interpreter's own; then the current folder,
    which is the server's.  Triton has it first; a file that happens to lie there is not to be taken for the model's.
    A backend in --backend-directory can import what lies beside it; a Python-based one has its folder in place of the
    model's, which have data and no code, as in Triton.
    """
    beside = (os.path.dirname(model.module),) if model.module else ()
    own = () if model.python_based else (model.version_dir, model.repository)
    ours = (*beside, *own, WORKERS_DIR, "")
    sys.path[:] = [entry for entry in sys.path if entry not in ours] + list(ours)
    sys.argv = [model.module if model.python_based else os.path.join(model.version_dir, model.file)]


def _settle_garbage():
    """Freeze what is alive after loading: collections during service need not walk through it again and again.

    Without it, a full collection over an imported torch takes some 100 ms, in the middle of a request.
    """
    gc.collect()
    gc.freeze()
