"""One model instance in a guest: a thread with rings and arenas of its own (WIRE.md, Guests)."""

import os
import threading

from tisfast_worker import serving_context
from tisfast_worker.backend import Backend
from tisfast_worker.control_messages import ControlMessages
from tisfast_worker.data_plane import DataPlane
from tisfast_worker.failure import last_line
from tisfast_worker.model import Model
from tisfast_worker.native import TF_ABI_VERSION
from tisfast_worker.serve import ModelService, backend_module, check_fits

_GONE = "this instance is gone"


class Seat(ControlMessages):
    """One instance by the server's messages: its descriptors, then what it loads, then when it ends."""

    def __init__(self, link, library, id, order, fds):
        """`order`: the number of the one that it belongs to; `fds`: the seven of WIRE.md's fork message, now ours."""
        super().__init__()
        self.id, self.order = id, order
        self.model = None  # whose instance it is: the guest's, told by the load message
        self._link, self._library, self._fds = link, library, fds
        self._service = None
        self._abandoned = False
        self._stopping = False
        self.send({"t": "hello", "abi": TF_ABI_VERSION})

    def send(self, message):
        """See ControlMessages."""
        self._link.send(dict(message, id=self.id))

    def post(self, message):
        """See ControlMessages."""
        self._link.post(dict(message, id=self.id))

    def load(self, message, model, ended):
        """Serve it in a thread.  model: has `backend(Model)`; ended(seat, reason): called there, at its end."""
        self.model = model
        name = "tisfast-" + str(message["model"].get("instance", ""))
        threading.Thread(target=self._live, args=(message["model"], ended), name=name, daemon=True).start()

    def stop(self):
        """Finish what was submitted, then end."""
        self._stopping = True
        service = self._service
        if service is not None:
            service.stop()
        elif self.model is None:
            self.discard()
            self.send({"t": "stopped"})

    def abandon(self):
        """The server hears it no more: end, whatever it does."""
        self._abandoned = True
        service = self._service
        if service is not None:
            service.abandon()
        elif self.model is None:
            self.discard()

    def discard(self):
        """Close descriptors that were not taken."""
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def leave_child(self):
        """In a child process of the user's."""
        if self._service is not None:
            self._service.leave_child()

    def _live(self, message, ended):
        reason = ""
        try:
            service = self._open(message)
            try:
                reason = self._serve(service)
            finally:
                self._service = None
                service.close()
        except BaseException as error:  # of what the server said: nothing has been loaded
            reason = last_line(error)
            self.discard()
            self.send({"t": "failed", "kind": "init", "error": reason})
        ended(self, reason)

    def _open(self, message):
        model = Model(message)
        fds, self._fds = self._fds, []
        plane = DataPlane(self._library, fds, message.get("output_bytes_max", 0))
        service = ModelService(model, plane, self)
        serving_context.enter(service.serving)
        self._service = service
        return service

    def _serve(self, service):
        """Why it ended, "" when it was asked to."""
        try:
            service.backend = self.model.backend(service.model)
            service.initialize()
        except BaseException as error:
            self.send(service.failed(error))
            return last_line(error)
        if self._stopping:
            service.stop()
        if self._abandoned:
            service.abandon()
        try:
            service.run(1)
        except BaseException as error:
            if self._abandoned:
                return _GONE
            self.send({"t": "broken", "error": last_line(error)})
            return last_line(error)
        self.send({"t": "stopped"})
        return _GONE if self._abandoned else ""


def backend_of(given, model):
    """The backend of one instance, loaded, from what the user gave.  Raises TypeError, WireError and what it raises.

    given: an object with `execute(requests)` or `execute_batch(inputs)`; a Backend; or what makes a Backend of a Model.
    """
    if isinstance(given, Backend):
        backend = given
        backend.model = model
    elif not isinstance(given, type) and _executes(given):
        backend = _object_backend()(model, given)
    elif callable(given):
        backend = given(model)
    else:
        backend = None
    if not isinstance(backend, Backend):
        raise TypeError(
            f"model '{model.name}': {given!r} is neither an object with execute(requests) or execute_batch(inputs) nor "
            "a backend of tisfast_worker.backend, nor something that makes one of a model"
        )
    check_fits(model, type(backend))
    backend.load()
    return backend


def _executes(given):
    return callable(getattr(given, "execute", None)) or callable(getattr(given, "execute_batch", None))


_made = []


def _object_backend():
    """The python backend for an object that is there already.  Its module is loaded with the first one."""
    if not _made:
        python = backend_module("python")

        class ObjectBackend(python.Backend):
            """Calls an object of the user's, whose life is his affair: it is neither initialised nor finalised."""

            def __init__(self, model, instance):
                super().__init__(model)
                self._instance = instance

            def load(self):
                """It is there."""

            def initialize(self):
                """It is ready."""
                self.bind()

            def free(self):
                """It stays."""
                self.close_loops()

        _made.append(ObjectBackend)
    return _made[0]
