"""One function behind a server of this program: how it begins and ends there.  Layer 6."""

from __future__ import annotations

import contextlib
import importlib
import logging
import shutil
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tisfast import limits
from tisfast.errors import BY_STATUS, BadRequest, TisError, Unavailable
from tisfast.functions.exporting import given_of, unmade_method, write_model
from tisfast.functions.options import Execution
from tisfast.functions.signature import Signature, read_signature
from tisfast.local_server import LocalServer, guest_runtime

if TYPE_CHECKING:
    from tisfast.client import Client

log = logging.getLogger("tisfast.functions")


def control_client(local: LocalServer, seconds_max: float) -> Client:
    """A client that may load models.  seconds_max: of each call."""
    from tisfast.client import Client  # noqa: PLC0415 - a function in this process does without

    return Client(f"http://{local.http_address}", token=local.control_token, timeout=seconds_max)


class Served:
    """One function, from its signature to its end.  One thread at a time may use it."""

    def __init__(self, function: Any, name: str, execution: Execution, options: Mapping[str, Any]) -> None:
        """Makes the objects of a class.  Raises BadRequest, and what the user's code raises."""
        guest_runtime()  # finds the package
        self._runtime = importlib.import_module("tisfast_worker.function_model")
        self._function, self._execution = function, execution
        self._owners: list[Any] = []
        self._backends: list[Any] = []
        self._leave: Any = None  # a guest.Leave, while its last requests are not answered
        self._unloading = False  # as `_leave`, of workers
        try:
            self._read(name, options)
            if execution.processes:
                self.close()  # the workers make objects of their own
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to mend
                self.close()
            raise

    def begin(self, local: LocalServer, seconds_max: float = limits.LOCAL_CALL_SECONDS_MAX) -> None:
        """Serve it, also again after `end`; seconds_max: of the server's part.  Raises TisError."""
        execution, signature = self._execution, self.signature
        self._unloading = False
        if execution.processes:
            self._load(local, seconds_max)
            return
        config = signature.config(execution.batch_size, execution.delay, execution.instances)
        backends = self._backends if len(self._backends) > 1 else self._backends[0]
        try:
            local.guest.serve(signature.name, config, backends, instances=execution.instances, timeout=seconds_max)
        except guest_runtime().GuestError as error:
            refused = BY_STATUS.get(error.status, Unavailable)  # the class that workers would be refused with
            raise refused(str(error)) from error

    def end(self, local: LocalServer, seconds_max: float) -> bool:
        """Serve it no longer: new requests do not find it.  Raises TisError, and then it is served still.

        True when its last request is answered, False when `seconds_max` pass first.
        """
        name = self.signature.name
        if self._execution.processes:
            self._unload(local, limits.LOCAL_CALL_SECONDS_MAX)
            self._unloading = not self._unloaded(local, seconds_max)
            return not self._unloading
        try:
            self._leave = local.guest.begin_leave(name)
        except guest_runtime().GuestError as error:
            if name in local.guest.models:
                raise Unavailable(str(error)) from error
            return True
        return self._left(seconds_max)

    def close(self) -> None:
        """End the objects of a class, in a thread where requests are not answered yet.  Raises what they raise."""
        if not self._owners:
            return
        if self._leave is None:
            self._tear_down()
        else:
            threading.Thread(target=self._close_later, name=f"tisfast-end-{self.signature.name}", daemon=True).start()

    @property
    def answered(self) -> bool:
        """No request of it is open since its `end`."""
        return self._leave is None and not self._unloading

    # ---- parts

    def _read(self, name: str, options: Mapping[str, Any]) -> None:
        execution, given = self._execution, given_of(options)
        unmade = unmade_method(self._function, options) if execution.processes else None
        copies = execution.instances if isinstance(self._function, type) and not execution.processes else 1
        callables = [self._opened() for _ in range(copies)] if unmade is None else [unmade]
        self.signature: Signature = read_signature(callables[0], name, given, batched=bool(execution.batch_size))
        if not execution.processes:
            call = self.signature.call()
            self._backends = [self._runtime.FunctionModel(each, call) for each in callables]

    def _opened(self) -> Any:
        callable_, owner = self._runtime.opened(self._function)
        if not callable(callable_):
            raise BadRequest(
                f"{self._function!r:.200} cannot be served: it is neither callable nor has it a method predict"
            )
        if owner is not self._function:
            self._owners.append(owner)
        return callable_

    def _load(self, local: LocalServer, seconds_max: float) -> None:
        """Have workers load it.  Raises TisError."""
        name = self.signature.name
        try:
            write_model(self._function, self.signature, self._execution, local.models)
            with control_client(local, seconds_max) as client:
                client.load(name)
        except BaseException:
            try:
                with contextlib.suppress(TisError):  # the first error is the one to mend
                    # A load that was interrupted may hang: the server carries the order out when that has ended.
                    self._unload(local, limits.FUNCTION_LEAVE_SECONDS_MAX)
            finally:  # a second Ctrl-C comes here
                shutil.rmtree(local.models / name, ignore_errors=True)
            raise

    def _unload(self, local: LocalServer, seconds_max: float) -> None:
        """The server forgets the model, and its name is free.  Raises TisError."""
        with control_client(local, seconds_max) as client:
            client.unload(self.signature.name)
        shutil.rmtree(local.models / self.signature.name, ignore_errors=True)

    def _unloaded(self, local: LocalServer, seconds_max: float) -> bool:
        """Whether its workers answer no request any more; the server's index says so, and no event does."""
        end = time.monotonic() + seconds_max
        with control_client(local, limits.LOCAL_STATISTICS_SECONDS_MAX) as client:
            while True:
                try:
                    index = client.models()
                except TisError:
                    return not local.alive()
                if not any(each["name"] == self.signature.name and each.get("state") == "UNLOADING" for each in index):
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                time.sleep(min(left, limits.LEAVING_LOOK_SECONDS))

    def _left(self, seconds_max: float) -> bool:
        """Whether no request of it is open any more; the server lets go of those that hang."""
        guest = guest_runtime()
        try:
            self._leave.wait(seconds_max)
        except guest.ServerGone:
            pass
        except guest.GuestError:
            return False
        self._leave = None
        return True

    def _close_later(self) -> None:
        if not self._left(guest_runtime().limits.LEAVE_SECONDS_MAX):
            log.warning("function '%s' hangs still: its objects are not torn down", self.signature.name)
            return
        try:
            self._tear_down()
        except Exception:
            log.exception("the teardown of function '%s' failed", self.signature.name)

    def _tear_down(self) -> None:
        """Each object, also where another one raises."""
        owners, self._owners = self._owners, []
        with contextlib.ExitStack() as last:
            for owner in reversed(owners):
                last.callback(self._runtime.closed, owner)
