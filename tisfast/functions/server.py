"""`tisfast.serve`: functions of this program behind a server of its own."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import secrets
import shutil
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tisfast import limits
from tisfast.errors import BadRequest, Internal, Unavailable
from tisfast.functions.exporting import given_of, unmade_method, write_model
from tisfast.functions.options import (
    Execution,
    FunctionOptions,
    ServeOptions,
    ServerOptions,
    check_known,
    execution_of,
)
from tisfast.functions.signature import Signature, name_of, read_signature
from tisfast.functions.table import Rates, html_table
from tisfast.local_server import LocalServer, guest_runtime

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tisfast.client import Client, Model

HOST: Final = "127.0.0.1"
HTTP_PORT: Final = 8000
GRPC_PORT: Final = 8001


def serve(*functions: Any, **options: Unpack[ServeOptions]) -> FunctionServer:
    """Serve functions, classes or objects: a server that answers, and ends with `stop`, a `with` block or this program.

    functions: callables, or mappings of names to callables.  options: those of FunctionOptions are about each of the
    functions, those of ServerOptions about the server.  Served again at the same ports, as a notebook's cell does it, a
    function takes the place of the one that has its name.  Raises BadRequest and Unavailable.
    """
    check_known(options, "tisfast.serve", FunctionOptions, ServerOptions)
    about = {key: value for key, value in options.items() if key in FunctionOptions.__annotations__}
    settings = {key: value for key, value in options.items() if key in ServerOptions.__annotations__}
    named = _named(functions, str(about.pop("name", "")))
    with _opening:
        server = _running_twin(settings, set(named))
        made = None if server is not None else FunctionServer(**settings)  # type: ignore[arg-type]
        try:
            for name, function in named.items():
                (server or made).add(function, name=name, **about)  # type: ignore[union-attr, arg-type]
        except BaseException:
            if made is not None:
                made.stop()
            raise
        found = server or made
        assert found is not None
        if made is not None:
            _servers.add(made)
    return found


class FunctionServer:
    """A server process with functions of this program.  All methods may be called from any thread."""

    def __init__(self, **options: Unpack[ServerOptions]) -> None:
        """Starts it.  Raises BadRequest, and Unavailable with the server's own words."""
        check_known(options, "tisfast.serve", ServerOptions)
        self.settings = dict(options)
        token = secrets.token_urlsafe(32)
        variables = options.get("environ")
        self._local = LocalServer(_flags(options), environment=variables, own_models=True, control_token=token)
        self._served: dict[str, _Served] = {}
        self._clients: dict[str, Client] = {}
        self._lock = threading.RLock()
        self._stopping = False
        self._rates = Rates(time.monotonic())
        self._local.start()

    # ---- what it is

    @property
    def url(self) -> str:
        """Its address for HTTP."""
        return f"http://{self._local.http_address}"

    @property
    def http_address(self) -> str:
        """HOST:PORT for HTTP."""
        return str(self._local.http_address)

    @property
    def grpc_address(self) -> str | None:
        """HOST:PORT for gRPC, None without."""
        return self._local.grpc_address

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT of its metrics, None without."""
        return self._local.metrics_address

    @property
    def models(self) -> list[str]:
        """The names of what it serves."""
        return sorted(self._served)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._local.alive()

    # ---- what it serves

    def add(self, function: Any, **options: Unpack[FunctionOptions]) -> Self:
        """Serve another function; one of the same name is replaced.  Raises BadRequest, Unavailable."""
        check_known(options, "add", FunctionOptions)
        name = options.get("name") or name_of(function)
        execution = execution_of(options, f"function '{name}'")
        served = _Served(function, name, execution, options)
        with self._lock:
            try:
                self._alive_or_raise()
                self._remove(name)
                served.begin(self._local)
            except BaseException:
                served.close()
                raise
            self._served[name] = served
        return self

    def remove(self, name: str) -> None:
        """Serve it no longer; returns when its last request is answered.  Raises NotFound, Unavailable."""
        with self._lock:
            if name not in self._served:
                raise BadRequest(f"'{name}' is not served; these are: {', '.join(self.models) or 'nothing'}")
            self._alive_or_raise()
            self._remove(name)

    def client(self, name: str = "", *, protocol: str = "http") -> Model:
        """A client of one function, to be called like it: `server.client()(x)`.

        protocol: "http", or "grpc", which streams need.  Raises BadRequest where several are served and none is named.
        """
        from tisfast.client import Client  # noqa: PLC0415 - only for who asks

        if not name and len(self._served) != 1:
            raise BadRequest(f"name one of what is served: {', '.join(self.models) or 'nothing'}")
        address = self.grpc_address if protocol == "grpc" else self.url
        if address is None:
            raise BadRequest("this server has no gRPC: give it a grpc_port")
        with self._lock:
            if protocol not in self._clients:
                self._clients[protocol] = Client(f"grpc://{address}" if protocol == "grpc" else address)
            return self._clients[protocol].model(name or self.models[0])

    def statistics(self) -> list[dict[str, Any]]:
        """What the server counts of each model, as its HTTP API has it.  Raises Unavailable."""
        found: list[dict[str, Any]] = _ask(self._local, "GET", "/v2/models/stats")["model_stats"]
        return found

    # ---- how it ends

    def wait(self, timeout: float | None = None) -> bool:
        """Until Ctrl-C, which ends it, or `stop`: True.  False when the time is over first.

        Raises Unavailable where the server dies, or does not serve a function any more.
        """
        try:
            return bool(self._local.guest.wait(timeout))
        except KeyboardInterrupt:
            self.stop()
            return True
        except guest_runtime().GuestError as error:
            if self._stopping:
                return True
            raise Unavailable(str(error)) from error

    def stop(self, seconds_max: float = limits.LOCAL_STOP_SECONDS_MAX) -> None:
        """End it: what it executes is answered first, for at most so long.  Again: nothing."""
        self._stopping = True
        try:
            self._local.stop(seconds_max)
        finally:
            with self._lock:
                for client in self._clients.values():
                    client.close()
                self._clients.clear()
                for served in self._served.values():
                    served.close()
                self._served.clear()

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `stop`."""
        self.stop()

    def __repr__(self) -> str:
        """One line."""
        if not self.alive():
            return "<tisfast server, stopped>"
        return f"<tisfast server at {self.url}: {', '.join(self.models) or 'no functions'}>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        with contextlib.suppress(Unavailable):
            if self.alive():
                counted = self._rates.count(time.monotonic(), self.statistics())
                return html_table(self.url, [each.signature for each in self._served.values()], counted)
        return "<p>tisfast server, stopped</p>"

    # ---- parts

    def _alive_or_raise(self) -> None:
        if not self.alive():
            raise Unavailable("the server has ended; serve the function anew")

    def _remove(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            try:
                served.end(self._local)
            finally:
                served.close()


class _Served:
    """One function, from its signature to its end."""

    def __init__(self, function: Any, name: str, execution: Execution, options: Mapping[str, Any]) -> None:
        """Makes the objects of a class.  Raises BadRequest, and what the user's code raises."""
        guest_runtime()  # finds the package
        self._runtime = importlib.import_module("tisfast_worker.function_model")
        self._function, self._execution = function, execution
        self._owners: list[Any] = []
        self._backends: list[Any] = []
        try:
            self._read(name, options)
        except BaseException:
            self.close()
            raise
        if execution.processes:
            self.close()  # the workers make objects of their own

    def begin(self, local: LocalServer) -> None:
        """Serve it.  Raises Unavailable, BadRequest."""
        execution, signature = self._execution, self.signature
        if execution.processes:
            write_model(self._function, signature, execution, local.models)
            _ask(local, "POST", f"/v2/repository/models/{quote(signature.name, safe='')}/load")
            return
        config = signature.config(execution.batch_size, execution.delay, execution.instances)
        backends = self._backends if len(self._backends) > 1 else self._backends[0]
        try:
            local.guest.serve(signature.name, config, backends, instances=execution.instances)
        except guest_runtime().GuestError as error:
            raise Unavailable(str(error)) from error

    def end(self, local: LocalServer) -> None:
        """Serve it no longer.  Raises Unavailable."""
        if self._execution.processes:
            _ask(local, "POST", f"/v2/repository/models/{quote(self.signature.name, safe='')}/unload")
            shutil.rmtree(local.models / self.signature.name, ignore_errors=True)
            return
        try:
            local.guest.leave(self.signature.name)
        except guest_runtime().GuestError as error:
            if self.signature.name in local.guest.models:
                raise Unavailable(str(error)) from error

    def close(self) -> None:
        """End the objects of a class."""
        owners, self._owners = self._owners, []
        for owner in owners:
            self._runtime.closed(owner)

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


_opening = threading.Lock()
_servers: weakref.WeakSet[FunctionServer] = weakref.WeakSet()


def _running_twin(settings: Mapping[str, Any], names: set[str]) -> FunctionServer | None:
    """This program's server at the same ports, where what is served again has its names."""
    port = settings.get("http_port", HTTP_PORT)
    for server in list(_servers) if port else ():
        if server.settings.get("http_port", HTTP_PORT) != port or not server.alive():
            continue
        if server.settings == settings and names & set(server.models):
            return server
        raise BadRequest(
            f"this program has a server at port {port} already, with {', '.join(server.models) or 'no functions'}: "
            "add(function) to that one, stop() it, or choose another http_port (0: any that is free)"
        )
    return None


def _named(functions: tuple[Any, ...], name: str) -> dict[str, Any]:
    """Functions by their names.  Raises BadRequest."""
    pairs = list(_pairs(functions))
    if not pairs:
        raise BadRequest("tisfast.serve needs a function, a class or an object to serve")
    if name and len(pairs) > 1:
        raise BadRequest(f"name={name!r} is for one function; give a mapping of names to functions")
    named: dict[str, Any] = {}
    for own, function in pairs:
        key = name or own
        if key in named:
            raise BadRequest(f"two functions have the name '{key}'; give a mapping of names to functions")
        named[key] = function
    return named


def _pairs(functions: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for each in functions:
        if isinstance(each, Mapping):
            yield from each.items()
        else:
            yield name_of(each), each


def _flags(options: Mapping[str, Any]) -> list[str]:
    host = options.get("host", HOST)
    found = [f"--http-address={host}", f"--http-port={options.get('http_port', HTTP_PORT)}"]
    for key, default in (("grpc", GRPC_PORT), ("metrics", None)):
        port = options.get(f"{key}_port", default)
        found += [f"--allow-{key}=false"] if port is None else [f"--{key}-address={host}", f"--{key}-port={port}"]
    if not options.get("log", False):
        found.append("--log-info=false")
    return [*found, *options.get("flags", ())]


def _ask(local: LocalServer, method: str, path: str) -> Any:
    """A call of the server's HTTP API.  Raises Unavailable, Internal."""
    host, _, port = str(local.http_address).rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=limits.LOCAL_CALL_SECONDS_MAX)
    try:
        headers = {"Authorization": f"Bearer {local.control_token}"}
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"the server (pid {local.pid}) does not answer: {error}") from error
    finally:
        connection.close()
    body = json.loads(text) if text else {}
    if answer.status != 200:
        raise Internal(str(body.get("error", body)))
    return body
