"""`tisfast.serve`: functions of this program behind a server of its own.  Layer 6."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.functions.options import (
    FunctionOptions,
    ServeOptions,
    ServerOptions,
    check_known,
    check_server,
    execution_of,
    in_options,
)
from tisfast.functions.served import Served, control_client
from tisfast.functions.signature import checked_name, name_of
from tisfast.functions.table import Rates, html_table
from tisfast.local_server import LocalServer, guest_runtime

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from tisfast.client import Client, Model

log = logging.getLogger("tisfast.functions")
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
    check_server(settings)
    named = _named(functions, checked_name(about.pop("name", "") or ""))
    # At a port of its own a server has no twin, and user code that takes its time holds up nobody.
    with _opening if settings.get("http_port", HTTP_PORT) else contextlib.nullcontext():
        server = _running_twin(settings, set(named))
        if server is None:
            _check_count()
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
        check_server(options)
        self.settings = dict(options)
        token = secrets.token_urlsafe(32)
        variables = options.get("environ")
        self._local = LocalServer(_flags(options), environment=variables, own_models=True, control_token=token)
        self._served: dict[str, Served] = {}
        self._clients: dict[str, Client] = {}
        self._changing = set[str]()  # names of functions that come or go, each in one thread
        self._guard = threading.Condition()  # of these three; nobody waits with it held
        self._stopping = False
        self._rates = Rates(time.monotonic())
        try:
            self._local.start()
        except TisError as error:
            error.reword(in_options)
            raise

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
        return sorted(list(self._served))  # noqa: C414 - other threads may change it

    def alive(self) -> bool:
        """Whether it runs."""
        return self._local.alive()

    # ---- what it serves

    def add(self, function: Any, **options: Unpack[FunctionOptions]) -> Self:
        """Serve another function; one of the same name is replaced.  Raises BadRequest, Unavailable."""
        check_known(options, "add", FunctionOptions)
        name = checked_name(options.get("name") or "") or name_of(function)
        execution = execution_of(options, f"function '{name}'")
        served = Served(function, name, execution, options)
        with self._change(name):
            old = None
            try:
                old = self._take_away(name, limits.FUNCTION_LEAVE_SECONDS_MAX)
                served.begin(self._local)
                with self._guard:
                    self._alive_or_raise()
                    self._served[name] = served
            except BaseException as error:
                with contextlib.suppress(Exception):  # the first error is the one to mend
                    served.close()
                if old is not None:
                    self._bring_back(name, old, error)
                raise
            if old is not None:
                old.close()
        return self

    def remove(self, name: str, seconds_max: float = limits.LOCAL_STOP_SECONDS_MAX) -> bool:
        """Serve it no longer: new requests do not find it.  Raises BadRequest, Unavailable.

        True when its last request is answered, False when `seconds_max` pass first.  Objects are torn down after that.
        """
        with self._change(name):
            if name not in self._served:
                raise BadRequest(f"'{name}' is not served; these are: {', '.join(self.models) or 'nothing'}")
            old = self._take_away(name, seconds_max)
            assert old is not None
            answered = old.answered
            old.close()
            return answered

    def client(self, name: str = "", *, protocol: str = "http") -> Model:
        """A client of one function, to be called like it: `server.client()(x)`.

        protocol: "http", or "grpc", which streams need.  Raises BadRequest where several are served and none is named.
        """
        from tisfast.client import Client  # noqa: PLC0415 - only for who asks

        if protocol not in ("http", "grpc"):
            raise BadRequest(f"protocol={protocol!r:.60} must be 'http' or 'grpc'")
        served = self.models  # other threads may change it
        if not name and len(served) != 1:
            raise BadRequest(f"name one of what is served: {', '.join(served) or 'nothing'}")
        address = self.grpc_address if protocol == "grpc" else self.url
        if address is None:
            raise BadRequest("this server has no gRPC: give it a grpc_port")
        with self._guard:
            if protocol not in self._clients:
                self._clients[protocol] = Client(f"grpc://{address}" if protocol == "grpc" else address)
            return self._clients[protocol].model(name or served[0])

    def statistics(self) -> list[dict[str, Any]]:
        """What the server counts of each model, as its HTTP API has it.  Raises Unavailable."""
        with control_client(self._local, limits.LOCAL_STATISTICS_SECONDS_MAX) as client:
            return client.statistics()

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
            _servers.discard(self)
            with self._guard:
                ended: list[Client | Served] = [*self._clients.values(), *self._served.values()]
                self._clients.clear()
                self._served.clear()
            with contextlib.ExitStack() as last:  # each, also where another one raises
                for each in reversed(ended):
                    last.callback(each.close)

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
        if not self.alive():
            return "<p>tisfast server, stopped</p>"
        try:
            counted = self._rates.count(time.monotonic(), self.statistics())
        except TisError as error:
            return f"<p>tisfast server at {self.url}: {escape(str(error))}</p>"
        return html_table(self.url, [each.signature for each in list(self._served.values())], counted)

    # ---- parts

    def _alive_or_raise(self) -> None:
        if self._stopping or not self.alive():
            raise Unavailable("the server has ended; serve the function anew")

    @contextlib.contextmanager
    def _change(self, name: str) -> Iterator[None]:
        """One thread at a time adds or removes functions of a name.  Raises Unavailable."""
        with self._guard:
            free = self._guard.wait_for(lambda: name not in self._changing, limits.LOCAL_CALL_SECONDS_MAX)
            self._alive_or_raise()
            if not free:
                seconds = limits.LOCAL_CALL_SECONDS_MAX
                raise Unavailable(f"another thread has been changing '{name}' for {seconds} s; wait for that one")
            self._changing.add(name)
        try:
            yield
        finally:
            with self._guard:
                self._changing.discard(name)
                self._guard.notify_all()

    def _take_away(self, name: str, seconds_max: float) -> Served | None:
        """What has the name, which is not served any more.  It is to be closed."""
        served = self._served.get(name)
        if served is None:
            return None
        try:
            served.end(self._local, seconds_max)
        except TisError:
            raise  # it is served still
        except BaseException:
            self._served.pop(name, None)
            served.close()
            raise
        self._served.pop(name, None)
        return served

    def _bring_back(self, name: str, old: Served, error: BaseException) -> None:
        """The next one could not take its place."""
        interrupted = not isinstance(error, Exception)  # by Ctrl-C, say: the load of the next one may hang
        seconds = limits.FUNCTION_BACK_SECONDS_MAX if interrupted else limits.LOCAL_CALL_SECONDS_MAX
        try:
            if not old.answered:
                raise Unavailable("it has not answered its last requests")
            old.begin(self._local, seconds)
            with self._guard:
                self._alive_or_raise()
                self._served[name] = old
        except BaseException as why:
            with contextlib.suppress(Exception):
                old.close()
            if not isinstance(why, Exception):  # a second Ctrl-C
                raise
            cause = str(error) or type(error).__name__
            said = f"'{name}' is not served any more: {cause}. The function before it does not come back: {why}"
            if not interrupted:
                raise Unavailable(said) from error
            log.warning("%s", said)


_opening = threading.Lock()
_servers = set[FunctionServer]()
"""Of this program, until they are stopped: who keeps only a client of one keeps the server, too."""


def _check_count() -> None:
    """Raises BadRequest where servers are started and not stopped, as nobody else ends them."""
    running = [server for server in list(_servers) if server.alive()]
    if len(running) >= limits.FUNCTION_SERVERS_MAX:
        raise BadRequest(
            f"this program has {len(running)} servers, which is the limit: stop() those that are done; with "
            "http_port=0 each tisfast.serve starts another one"
        )


def _running_twin(settings: Mapping[str, Any], names: set[str]) -> FunctionServer | None:
    """This program's server at the same ports, where what is served again has its names."""
    port = settings.get("http_port", HTTP_PORT)
    for server in list(_servers):
        if not server.alive():
            _servers.discard(server)  # it has ended by itself
        elif port and server.settings.get("http_port", HTTP_PORT) == port:
            if names & set(server.models):
                if server.settings != settings:
                    raise BadRequest(_other_settings(port, server.settings, settings))
                return server
            raise BadRequest(
                f"this program has a server at port {port} already, with {', '.join(server.models) or 'no functions'}: "
                "add(function) to that one, stop() it, or choose another http_port (0: any that is free)"
            )
    return None


def _other_settings(port: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why a function is not served again by the server that has it."""
    name = next(name for name in sorted({*old, *new}) if old.get(name, name) != new.get(name, name))
    was, wanted = (f"{name}={each[name]!r}" if name in each else f"no {name}=" for each in (old, new))
    return (
        f"this program has a server at port {port} already, which was started with {was:.200}, and now there is "
        f"{wanted:.200}: stop() that one to change it, leave the option as it was, or choose another http_port (0: any "
        "that is free)"
    )


def _named(functions: tuple[Any, ...], name: str) -> dict[str, Any]:
    """Functions by their names.  Raises BadRequest."""
    pairs = list(_pairs(functions))
    if not pairs:
        raise BadRequest("tisfast.serve needs a function, a class or an object to serve")
    if name and len(pairs) > 1:
        raise BadRequest(f"name={name!r} is for one function; give a mapping of names to functions")
    named: dict[str, Any] = {}
    for own, function in pairs:
        key = name or checked_name(own)
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
