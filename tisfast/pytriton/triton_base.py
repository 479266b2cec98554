"""What a server of this program and one that it joins have in common: models, and when they are served."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import pathlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from tisfast.local_server import guest_runtime
from tisfast.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonRuntimeError,
    PyTritonUnrecoverableError,
)
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.models import BoundModel, Infer
from tisfast.pytriton.proxy import telemetry
from tisfast.pytriton.utils.workspace import Workspace

log = logging.getLogger("tisfast.pytriton")
_VERBOSE: Final = (
    "Triton Inference Server is running with enabled verbose logs (log_verbose=%s). "
    "It may affect inference performance."
)
Base = TypeVar("Base", bound="TritonBase")

MONITORING_PERIOD_S: Final = 10.0
WAIT_FORM_MODEL_TIMEOUT_S: Final = 60.0
"""Seconds in which the server must have taken a model."""
_LOOK_S: Final = 0.5
"""A signal handler may come between a look and the wait after it, which it cannot end then."""


class StoppedMeanwhile(PyTritonInvalidOperationError):
    """`stop` was called, in another thread or by a signal handler, before `connect` or `bind` had ended."""


class TritonBase:
    """Models of this program and the connection over which a server has them.

    A subclass says how the connection is made and ended.  All methods may be called from any thread.
    """

    def __init__(self, workspace: Workspace | str | pathlib.Path | None = None) -> None:
        """Makes the workspace, and starts nothing.  Raises FileExistsError for a workspace that exists."""
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._models: list[BoundModel] = []
        self._served: set[tuple[str, int]] = set()
        self._guest: Any = None
        self._lock = threading.RLock()
        self._news = threading.Condition()
        self._connected = self._connecting = False
        self._loading = False  # under the lock, by `connect` or `bind`
        self._stop_wanted = False  # by a `stop` that waits for the lock, or whose thread loads
        _stop_at_exit(self)

    def __enter__(self: Base) -> Base:
        """Connect."""
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def bind(  # noqa: PLR0913, PLR0917 - PyTriton's
        self,
        model_name: str,
        infer_func: Infer | Sequence[Infer],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: Sequence[str] | None = None,
        processes: int = 0,
    ) -> None:
        """Have a callable serve a model: at once when the server runs, else when it does.

        infer_func: a callable, or one for each instance.  strict: what it returns must be as the outputs say.
        processes: so many workers load the callable, which is pickled; not in PyTriton.
        Raises PyTritonValidationError, PyTritonInvalidOperationError for a name that is taken, and what loading raises.
        """
        model = BoundModel(model_name, infer_func, inputs, outputs, int(model_version), config, strict, processes)
        model.trace_config = list(trace_config or self._default_trace_config())
        telemetry.trace_with(model.trace_config)
        with self._lock:
            if any(model.same_as(each) for each in self._models):
                raise PyTritonInvalidOperationError("Cannot add model with the same name twice.")
            if self._connected:
                with self._unless_stopped():
                    self._load(model)
            self._models.append(model)

    def connect(self) -> None:
        """Reach the server and load all models.

        Raises TimeoutError when the server is not ready in time, StoppedMeanwhile when `stop` comes first.
        """
        with self._lock:
            if self._connected:
                return
            with self._unless_stopped():
                self._connecting = True
                try:
                    guest = self._guest = self._join()
                    for model in self._models:
                        self._load(model)
                    self._connected = True
                except BaseException:  # undone, else a second try would find what the first one left
                    self._undo(wished=False)
                    raise
                finally:
                    self._connecting = False
            threading.Thread(target=self._watch, args=(guest,), name="tisfast-pytriton", daemon=True).start()
        self._tell_connected()

    def serve(self, monitoring_period_s: float = MONITORING_PERIOD_S) -> None:
        """Connect and wait until `stop`, Ctrl-C, or the end of the server or of a model; then all is stopped."""
        try:
            self.connect()
            with self._news:
                while self._connected and self.is_alive():
                    self._news.wait(min(monitoring_period_s, _LOOK_S))
        except KeyboardInterrupt:
            log.info("interrupted: the server is stopped")
        except StoppedMeanwhile:
            log.info("stopped before it served")
        finally:
            self.stop()

    def stop(self) -> bool:
        """Let go of all models and of the server; False when there was nothing to stop.

        A `connect` or a warm-up ends at once, whether another thread is in it or a signal handler stops its own.
        """
        self._stop_wanted = True
        self._tell_waiters()
        if self._connecting:
            self._interrupt()
        with self._lock:
            if self._loading:  # in this thread, so a signal handler calls: what it interrupts does the rest
                return True
            was_connected = self._connected
            self._undo(wished=True)
        self._tell_waiters()
        return was_connected

    def is_alive(self) -> bool:
        """Whether the server and all models that were bound serve."""
        guest = self._guest
        if not self._reached(guest):
            return False
        serving = set() if guest is None else set(guest.models)
        return all(
            (each.name, each.version) in self._served and (each.processes or each.name in serving)
            for each in self._models
        )

    def is_connected(self) -> bool:
        """True between `connect` or `run` and `stop`."""
        return self._connected

    # ---- of subclasses

    def _join(self) -> Any:
        """The connection: a tisfast_worker.guest.Server."""
        raise NotImplementedError

    def _leave(self, guest: Any) -> None:
        """End it; `guest` is None where there is none."""
        raise NotImplementedError

    def _reached(self, guest: Any) -> bool:
        """Whether the server is there."""
        raise NotImplementedError

    def _interrupt(self) -> None:
        """Have `connect`, which is at work, fail soon.  Called without the lock."""
        guest = self._guest
        if guest is not None:
            guest.close(timeout=0)

    def _load_processes(self, model: BoundModel) -> None:
        """Have the server load a model whose callable is pickled."""
        raise PyTritonInvalidOperationError(
            f"Model '{model.name}' has processes={model.processes}: only the server of this program has workers for it"
        )

    def _tell_connected(self) -> None:
        """Log what users want to know when all models are loaded."""

    def _default_trace_config(self) -> Sequence[str]:
        """Trace settings for models that have none of their own."""
        return ()

    # ---- parts

    @contextlib.contextmanager
    def _unless_stopped(self) -> Iterator[None]:
        """Load models, under the lock.  Raises StoppedMeanwhile where `stop` was called; then all is undone."""
        self._loading = True
        try:
            yield
        finally:
            self._loading = False  # a signal handler's `stop` from here on does all by itself
            if self._stop_wanted:
                self._undo(wished=True)
                raise _stopped()

    def _load(self, model: BoundModel) -> None:
        """Raises PyTritonBadParameterError for a configuration out of range, PyTritonRuntimeError from the server."""
        if self._stop_wanted:
            raise _stopped()
        config = model.server_config()
        if model.processes:
            self._load_processes(model)
            self._served.add((model.name, model.version))
            return
        self._warm_up(model)
        guest = guest_runtime()
        try:
            self._guest.serve(
                model.name,
                config,
                model.backends(functools.partial(self._unrecoverable, self._guest)),
                len(model.callables),
                model.version,
                timeout=WAIT_FORM_MODEL_TIMEOUT_S,
                take_over=True,
            )
        except guest.GuestError as error:
            raise PyTritonRuntimeError(f"model '{model.name}' was not loaded: {error}") from error
        self._served.add((model.name, model.version))

    def _warm_up(self, model: BoundModel) -> None:
        """In a thread of its own, as a callable may hang and `stop` is not to wait for it."""
        if not model.config.model_warmup:
            return
        done = threading.Event()

        def run() -> None:
            try:
                model.warm_up()
            finally:
                done.set()
                self._tell_waiters()

        threading.Thread(target=run, name="tisfast-warm-up", daemon=True).start()
        with self._news:
            while not (self._stop_wanted or done.is_set()):
                self._news.wait(_LOOK_S)
        if self._stop_wanted:
            raise _stopped()

    def _undo(self, *, wished: bool) -> None:
        """Let go of everything, under the lock.  wished: by `stop`, and then the workspace goes, too."""
        if wished:
            self._stop_wanted = False
        guest, self._guest = self._guest, None
        self._connected = False
        self._served.clear()
        self._leave(guest)
        if wished:
            self._workspace.clean()

    def _unrecoverable(self, guest: Any, error: PyTritonUnrecoverableError | str) -> None:
        """In a model's thread, which has to answer first.  guest: the connection that the model had."""
        threading.Thread(
            target=self._stop_of,
            args=(guest, "a callable cannot go on, so everything is stopped: %s", error),
            name="tisfast-pytriton-stop",
            daemon=True,
        ).start()

    def _watch(self, guest: Any) -> None:
        """In a thread: stop when the server or a model ends by itself."""
        try:
            guest.wait()
        except guest_runtime().GuestError as error:
            self._stop_of(guest, "everything is stopped: %s", error)

    def _stop_of(self, guest: Any, why: str, reason: object) -> None:
        """Stop, unless that has happened and the program has gone on to another connection."""
        with self._lock:
            if guest is not None and self._guest is guest:
                log.error(why, reason)
                self.stop()

    def _tell_waiters(self) -> None:
        with self._news:
            self._news.notify_all()


def warn_of_verbose_logs(level: Any) -> None:
    """level: of the server's log; 0 and None are none."""
    if level:
        log.warning(_VERBOSE, level)


def _stopped() -> StoppedMeanwhile:
    return StoppedMeanwhile("`stop` was called before the server and all models were there")


def _stop_at_exit(server: TritonBase) -> None:
    """Without keeping it alive until then.  What the program forks ends without it: it has no part in the server."""
    reference, owner = weakref.ref(server), os.getpid()

    def stop() -> None:
        found = reference()
        if found is not None and os.getpid() == owner:
            found.stop()

    atexit.register(stop)
    weakref.finalize(server, atexit.unregister, stop)
