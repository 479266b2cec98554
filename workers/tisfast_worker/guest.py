"""Serve models from a process of your own: join a server as its guest (docs/guests.md).

    from tisfast_worker.guest import join

    with join("/run/user/1000/tisfast") as server:
        server.serve("add_one", CONFIG, AddOne())
        server.wait()

The process stays yours: nothing is forked, no signal is handled, and what you print goes where it went.
"""

import itertools
import json
import logging
import os
import stat
import threading
import time
import weakref

from tisfast_worker import limits
from tisfast_worker.guest_link import GuestLink, connect, script_name
from tisfast_worker.guest_seat import Seat, backend_of
from tisfast_worker.native import TF_ABI_VERSION, Library
from tisfast_worker.serve import WORKERS_DIR

SOCKET = "guests.sock"
log = logging.getLogger("tisfast.guest")


class GuestError(Exception):
    """The server refused something, or cannot be reached; the text says what and why.

    status: the server's code for it, as in its rings (4: no retry can help); 0 where it has none.
    """

    def __init__(self, text, status=0):
        super().__init__(text)
        self.status = status


class ServerGone(GuestError):
    """The server has ended, or sent this guest away."""


def join(directory, name="", patience=0.0):
    """A Server: that of `tisfast serve --guest-directory DIRECTORY`.  Raises GuestError.

    name: what the server's log calls this process, by default its script; patience: seconds to wait for a server that
    is not there yet.
    """
    _check_private(directory)
    deadline = time.monotonic() + patience
    path = os.path.join(os.fspath(directory), SOCKET)
    while True:
        try:
            connection = connect(path)
            break
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if time.monotonic() >= deadline:
                raise GuestError(
                    f"no server welcomes guests in {directory}: {error.strerror}; start one there with `tisfast serve "
                    f"--guest-directory {directory}`"
                ) from None
            time.sleep(limits.GUEST_LOOK_SECONDS)
        except OSError as error:
            raise GuestError(f"cannot join the server in {directory}: {error}") from error
    server = Server(connection, name or script_name())
    server._enter()
    return server


class Server:
    """The server that this process is a guest of.  All methods may be called from any thread."""

    def __init__(self, connection, name):
        """Made by `join`."""
        self._name = name
        self._library = Library(os.path.join(WORKERS_DIR, "libtisfast_shm.so"))
        self._link = GuestLink(connection, self._heard, self._lost)
        self._numbers = itertools.count(1)
        self._orders = {}  # number: _Order, of those that are not done
        self._seats = {}  # by id
        self._models = {}  # by name
        self._welcome = threading.Event()
        self._news = threading.Condition()
        self._closing = self._expected = False
        self._reason = ""
        _forget_in_children(self)

    def __enter__(self):
        """See `join`."""
        return self

    def __exit__(self, *_):
        """See `close`."""
        self.close()

    @property
    def gone(self):
        """Why the server is not there any more; "" while it is."""
        return self._reason

    @property
    def models(self):
        """Names of the models that are served, also by another guest that took the name over."""
        served = [model for model in list(self._models.values()) if model.served]
        return sorted(model.name for model in served if not model.gone or (model.taken and not self._reason))

    def serve(  # noqa: PLR0913, PLR0917 - all but three have defaults
        self, name, config, backend, instances=0, version=1, timeout=limits.LOAD_ANSWER_SECONDS_MAX, take_over=False
    ):
        """Have a model served; returns when it can be asked.  Raises GuestError.

        config: a ModelConfig as a dictionary, as JSON or as pbtxt text; tensors and all must be in it.
        backend: an object with `execute(requests)` (and `execute_batch(inputs)`, if it likes); or a backend: an
        ArrayBackend or RequestBackend of tisfast_worker.backend, or what makes one of a Model; a list of these has one
        for each instance.  instances: threads that execute, each with memory of its own; 0: as the configuration says.
        take_over: from another guest that serves a model of this name, once this one can be asked.
        """
        given = list(backend) if isinstance(backend, (list, tuple)) else [backend]
        if len(given) > 1 and instances not in (0, len(given)):
            raise GuestError(
                f"model '{name}': {len(given)} backends for {instances} instances; give as many as instances"
            )
        text, form = _configuration(config)
        model = _Model(name, given, version, next(self._numbers))
        known = self._models.setdefault(name, model)
        if known is not model and not (known.gone or known.taken or known.leaving):
            raise GuestError(
                f"model '{name}' version {version} has a name that is served by this guest already,"
                f" with version {known.version}; `leave` it first, or give one of them another name"
            )
        self._models[name] = model
        order = {"t": "serve", "n": model.order, "name": name, "form": form, "config": text, "version": version}
        if take_over:
            order["take_over"] = True
        order["instances"] = instances or (len(given) if len(given) > 1 else 0)
        try:
            self._ask(order, timeout)
        except BaseException:
            self._forget(model)
            if not self._reason:  # nobody waits for the load any more, so the server is not to end it later
                self._link.send({"t": "leave", "n": next(self._numbers), "name": name})
            raise
        model.served = True

    def leave(self, name, timeout=limits.LEAVE_SECONDS_MAX):
        """Serve a model no longer; returns when its last request is answered.  Raises GuestError."""
        self.begin_leave(name).wait(timeout)

    def begin_leave(self, name):
        """A Leave: new requests do not find the model, and its name may be served anew.  Raises GuestError."""
        model = self._models.get(name)
        if model is None:
            raise GuestError(f"model '{name}' is not served by this guest")
        model.leaving = True
        left = model.gone or model.taken
        order = None if left else self._begin({"t": "leave", "n": next(self._numbers), "name": name})
        return Leave(order, lambda: self._forget(model))

    def wait(self, timeout=None):
        """Until the server goes, or a model of this guest is not served any more: raises ServerGone, or GuestError.

        False when `timeout` seconds pass first; True when the guest itself has left, in another thread.
        """
        with self._news:
            self._news.wait_for(lambda: self._closing or self._reason or self._fallen(), timeout)
        if self._closing:
            return True
        if self._reason:
            raise ServerGone(self._reason)
        fallen = self._fallen()
        if fallen is not None:
            raise GuestError(f"model '{fallen.name}' is not served any more: {fallen.gone}")
        return False

    def expect_end(self):
        """The server is going to end, as this program wishes: that is worth no warning."""
        self._expected = True

    def close(self, timeout=limits.CLOSE_SECONDS_MAX):
        """Leave: models first finish what they have, for at most `timeout` seconds together; 0: at once."""
        if self._closing:
            return
        self._closing = True
        deadline = time.monotonic() + timeout
        threads = [
            threading.Thread(target=self._leave_quietly, args=(name, deadline), daemon=True)
            for name in (list(self._models) if timeout > 0 else ())
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._link.close()
        self._tell_waiters()

    # ---- parts

    def _enter(self):
        self._link.start()
        self._link.send({"t": "guest", "abi": TF_ABI_VERSION, "name": self._name})
        if not self._welcome.wait(limits.CONNECT_SECONDS_MAX):
            self._link.close()
            raise GuestError(f"the server did not answer within {limits.CONNECT_SECONDS_MAX} s")
        if self._reason:
            raise GuestError(f"the server does not take this guest: {self._reason}")

    def _leave_quietly(self, name, deadline):
        try:
            self.leave(name, max(0.0, deadline - time.monotonic()))
        except GuestError as error:
            log.warning("model '%s' could not take its leave: %s", name, error)

    def _fallen(self):
        models = list(self._models.values())
        left = [model for model in models if model.leaving or model.taken]
        return next((model for model in models if model.served and model.gone and model not in left), None)

    def _forget(self, model):
        if self._models.get(model.name) is model:
            del self._models[model.name]

    def _ask(self, order, timeout):
        self._begin(order).wait(timeout)

    def _begin(self, order):
        """The order, sent; it is known until the server has answered it, which bounds how many it takes."""
        number, question = order["n"], _Order(f"{order['t']} '{order['name']}'")
        self._orders[number] = question
        try:
            if self._reason:
                raise ServerGone(self._reason)
            self._link.send(order)
        except BaseException:
            self._orders.pop(number, None)
            raise
        return question

    def _tell_waiters(self):
        with self._news:
            self._news.notify_all()

    # ---- in the link's thread

    def _heard(self, message, descriptors):
        kind = message.get("t")
        if kind == "welcome":
            self._welcome.set()
        elif kind == "done":
            order = self._orders.pop(message.get("n"), None)
            if order is not None:  # else the server says it twice
                order.error, order.status = str(message.get("error", "")), message.get("status", 0)
                order.done.set()
        elif kind == "taken":
            model = self._models.get(message.get("name"))
            if model is not None and model.order == message.get("n"):  # else it has been served anew meanwhile
                model.taken = True
        elif kind == "seat":
            self._seats[message["id"]] = Seat(self._link, self._library, message["id"], message["n"], descriptors)
        else:
            seat = self._seats.get(message.get("id"))
            if seat is not None:  # else it has ended by itself
                self._tell(seat, message)

    def _tell(self, seat, message):
        kind = message["t"]
        if kind == "load":
            model = self._models.get(message["model"]["name"])
            if model is None or model.order != seat.order:  # nobody waits for that load any more
                seat.send({"t": "failed", "kind": "init", "error": "this guest has no such model"})
            else:
                seat.load(message, model, self._ended)
        elif kind == "stop":
            seat.stop()
        elif kind == "dismiss":
            self._seats.pop(seat.id, None)
            reason = str(message.get("reason", ""))
            if seat.model is not None:
                seat.model.fall(f"the server let go of it: an instance {reason}")
            seat.abandon()
            self._tell_waiters()
        elif not seat.hear(message):
            raise ValueError(f"a {kind!r} message to an instance that serves")

    def _lost(self, reason):
        if not self._closing and not self._expected:
            log.warning("the server is not there any more, so this guest serves nothing: %s", reason)
        self._reason = reason
        self._welcome.set()
        for seat in list(self._seats.values()):
            seat.abandon()
        self._seats.clear()
        for model in list(self._models.values()):
            model.fall(reason)
        for order in list(self._orders.values()):
            order.gone = reason
            order.done.set()
        self._tell_waiters()

    # ---- in an instance's thread

    def _ended(self, seat, reason):
        self._seats.pop(seat.id, None)
        if reason:  # else the server has asked it to: it says why, or this guest wished it, or another instance fell
            seat.model.fall(reason)
            self._tell_waiters()

    def _leave_child(self):
        self._reason = self._reason or "this process was forked from the guest, and only the guest speaks to the server"
        self._link.leave_child()
        for seat in list(self._seats.values()):
            seat.leave_child()


class Leave:
    """A model that takes its leave.  Made by `Server.begin_leave`."""

    def __init__(self, order, forget):
        self._order, self._forget = order, forget

    def wait(self, timeout=limits.LEAVE_SECONDS_MAX):
        """Until its last request is answered.  Raises GuestError, also when the time is over; then wait again."""
        if self._order is not None:
            self._order.wait(timeout)
        self._forget()


class _Order:
    """An order to the server that threads may wait for."""

    def __init__(self, title):
        self.done = threading.Event()
        self.error, self.status, self.gone, self._title = "", 0, "", title

    def wait(self, timeout):
        """Until it is done.  Raises GuestError."""
        if not self.done.wait(timeout):
            raise GuestError(f"the server has not done it within {timeout:g} s: {self._title}")
        if self.gone:
            raise ServerGone(self.gone)
        if self.error:
            raise GuestError(self.error, self.status)


class _Model:
    """One model of this guest.

    order: the number of the order that brought it.  `gone`: why it is not served any more; `taken`: another guest has
    its name.
    """

    def __init__(self, name, given, version, order):
        self.name, self.served, self.leaving, self.gone = name, False, False, ""
        self.version, self.order, self.taken = version, order, False
        self._given = given
        self._numbers = itertools.count()

    def backend(self, model):
        """The backend of the next instance."""
        return backend_of(self._given[next(self._numbers) % len(self._given)], model)

    def fall(self, reason):
        """The first reason is the one that counts."""
        self.gone = self.gone or reason


def _configuration(config):
    """(text, "json" or "pbtxt")."""
    if isinstance(config, dict):
        return json.dumps(config), "json"
    if not isinstance(config, str):
        raise GuestError(f"a configuration is a dictionary or text, not a {type(config).__name__}")
    return config, "json" if config.lstrip().startswith("{") else "pbtxt"


def _check_private(directory):
    try:
        status = os.stat(directory)
    except OSError as error:
        raise GuestError(
            f"there is no server in {directory}: {error.strerror}; start one there with `tisfast serve "
            f"--guest-directory {directory}`"
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise GuestError(
            f"{directory} has mode {stat.S_IMODE(status.st_mode):04o} and belongs to user {status.st_uid}: guests and "
            f"server meet in a folder of mode 0700 of their own user, here {os.geteuid()}"
        )


_servers = weakref.WeakSet()
_hooked = []


def _forget_in_children(server):
    """A child that the user's code forks has copies of everything, and nothing of it is its own."""
    _servers.add(server)
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(after_in_child=lambda: [each._leave_child() for each in list(_servers)])
