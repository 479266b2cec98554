"""The server whose model is varied: one of our own, or one that runs already.  Layer 5 (analyze)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tisfast import limits
from tisfast.analyze.variants import canonical
from tisfast.client import Client
from tisfast.client.address import Address, parse_url
from tisfast.client.errors import ConnectFailed, TimedOut
from tisfast.errors import BadRequest, Forbidden, TisError, Unauthenticated, Unavailable
from tisfast.local_server import LocalServer
from tisfast.processes.worker_memory import taken_bytes

LOCAL_FLAGS: Final = (
    "--model-control-mode=explicit",
    "--http-address=127.0.0.1",
    "--grpc-address=127.0.0.1",
    "--http-port=0",
    "--grpc-port=0",
    "--allow-metrics=false",
)
LOOKED_SECONDS: Final = 0.1
"""Between two looks whether a server that was lost is back: it tells nobody."""
STOP_SECONDS: Final = 3.0
"""A server of our own has for its end: nobody waits for its answers any more, and a model may hang."""
BACK_SECONDS: Final = 10.0
"""That are waited for its answer, its return or its end."""

SAID_MAX: Final = 80
"""Characters that are quoted of an answer which is no server's."""

Connect = Callable[[str, float], Client]
"""A client of a URL whose calls may take so many seconds."""


class Server(Protocol):
    """What both kinds have."""

    def address(self) -> Address:
        """Of the wanted protocol."""

    def load(self, model: str, config: Mapping[str, Any] | None) -> None:
        """Load a model with a configuration; None: with its file's.  Raises TisError."""

    def unload(self, model: str) -> None:
        """No longer serve a model.  Raises TisError."""

    def memory(self) -> int | None:
        """Bytes that its processes take; None where they are not known."""

    def mend(self) -> str:
        """Behind a failure: have a server again that answers.

        Gives a sentence when it is another one than before, or "".  Raises TisError when there is none any more.
        """

    def abandon(self) -> None:
        """Have a load or a start end that another thread waits for; from now on there is little time."""

    def close(self) -> str:
        """Leave things as they were; gives a sentence when that failed, or ""."""


class OwnServer:
    """A server process of this program, with a repository of the user's."""

    def __init__(
        self,
        repository: Path,
        models: Sequence[str],
        *,
        first: Sequence[str],
        grpc: bool,
        flags: Sequence[str],
        log: Path,
    ) -> None:
        """Nothing starts before `start`.  first: those of the models that it starts with; log: the server's."""
        if not repository.is_dir():
            raise BadRequest(
                f"--model-repository {repository} is no folder; name the folder that has the model's folder"
            )
        missing = next((each for each in models if not (repository / each).is_dir()), None)
        if missing is not None:
            found = sorted(each.name for each in repository.iterdir() if each.is_dir())
            named = [*found[: limits.ANALYZE_NAMED_MAX], *(["..."] if len(found) > limits.ANALYZE_NAMED_MAX else [])]
            raise BadRequest(
                f"--model-repository {repository} has no folder of a model '{missing}'; it has "
                f"{', '.join(named) or 'none at all'}"
            )
        self._models, self._grpc, self._log = first, grpc, log
        self._flags = [*LOCAL_FLAGS, f"--model-repository={repository}", f"--log-file={log}", *flags]
        self._server = LocalServer(self._flags, joins=False)
        self._starts, self._abandoned = 0, False

    def start(self) -> None:
        """Start it with its first models as they are.  Raises TisError."""
        try:
            self._server = LocalServer([*self._flags, *(f"--load-model={each}" for each in self._models)], joins=False)
            if self._abandoned:
                self._server.give_up()
            self._server.start(limits.ANALYZE_LOAD_SECONDS_MAX)
        except TisError as error:
            log = f" (its log: {self._log})" if self._log.exists() else ""
            raise type(error)(f"{error.message}{log}") from None

    def address(self) -> Address:
        """See Server."""
        found = self._server.grpc_address if self._grpc else self._server.http_address
        if found is None:
            raise Unavailable(
                "the server that was started does not listen for this protocol; leave its --allow flag out"
            )
        return parse_url(f"{'grpc' if self._grpc else 'http'}://{found}")

    def load(self, model: str, config: Mapping[str, Any] | None) -> None:
        """See Server."""
        with Client(str(self._server.http_address), timeout=limits.ANALYZE_LOAD_SECONDS_MAX, retries=0) as client:
            client.load(model, None if config is None else json.dumps(config))

    def unload(self, model: str) -> None:
        """See Server."""
        with Client(str(self._server.http_address), timeout=limits.ANALYZE_LOAD_SECONDS_MAX, retries=0) as client:
            client.unload(model)

    def memory(self) -> int | None:
        """See Server."""
        return taken_bytes(self._server.pid)

    def mend(self) -> str:
        """See Server."""
        if self._answers():
            return ""
        self._starts += 1
        if self._starts > limits.ANALYZE_STARTS_MAX:
            raise Unavailable(
                f"the server has ended {self._starts} times, and is started {limits.ANALYZE_STARTS_MAX} times at most; "
                f"its log says why: {self._log}"
            )
        status = self._server.wait(BACK_SECONDS)  # its connections close before it has ended
        self._server.stop(0.0)
        self.start()
        what = f"no longer answered within {BACK_SECONDS:g} s" if status is None else f"ended with exit status {status}"
        return f"the server {what} (its log: {self._log})"

    def _answers(self) -> bool:
        try:
            with Client(str(self._server.http_address), timeout=BACK_SECONDS, retries=0) as client:
                return client.live()
        except TisError:
            return False

    def abandon(self) -> None:
        """See Server.  A load ends with the server, and nobody needs its answers any more."""
        self._abandoned = True
        self._server.give_up()
        self._server.stop(0.0)

    def close(self) -> str:
        """See Server."""
        self._server.stop(STOP_SECONDS)
        return ""


class RunningServer:
    """A server that somebody else has started, and that loads models when it is asked."""

    def __init__(self, address: Address, models: Sequence[str], connect: Connect) -> None:
        self._address, self._url, self._connect = address, str(address), connect
        self._changed = set[str]()
        self._abandoned = False
        self._loading: Client | None = None
        self._gone = False
        with connect(self._url, limits.BENCH_CONNECT_SECONDS_MAX) as client:
            _check_protocol(client, address)
            self._before: Mapping[str, Mapping[str, Any]] = {each: client.model(each).config() for each in models}

    def address(self) -> Address:
        """See Server."""
        return self._address

    def try_load(self) -> None:
        """Whether it loads when it is asked: what it has, again.  Raises Unavailable with what to do."""
        for model, config in self._before.items():
            self._try_load(model, config)

    def _try_load(self, model: str, config: Mapping[str, Any]) -> None:
        try:
            self._load(model, json.dumps(config))
        except TisError as error:
            raise Unavailable(
                f"{self._url} did not load model '{model}' again with the configuration that it has "
                f"({error.message}): variants are made by such loads, so start it with --model-control-mode=explicit, "
                "or give --model-repository instead of -u"
            ) from None
        self._changed.add(model)

    def load(self, model: str, config: Mapping[str, Any] | None) -> None:
        """See Server."""
        self._changed.add(model)
        self._load(model, None if config is None else json.dumps(config))

    def unload(self, model: str) -> None:
        """See Server."""
        self._changed.add(model)
        self._call(lambda client: client.unload(model))

    def _load(self, model: str, config: str | None) -> None:
        """None: with its own file's."""
        self._call(lambda client: client.load(model, config))

    def _call(self, call: Callable[[Client], None]) -> None:
        seconds = BACK_SECONDS if self._abandoned else limits.ANALYZE_LOAD_SECONDS_MAX
        with self._connect(self._url, seconds) as client:
            self._loading = client
            try:
                call(client)
            finally:
                self._loading = None

    def abandon(self) -> None:
        """See Server.  The server ends what it has begun, whether somebody waits for it or not."""
        self._abandoned = True
        self._changed.update(self._before)
        if (client := self._loading) is not None:
            client.close()

    def memory(self) -> int | None:
        """See Server."""
        return None

    def mend(self) -> str:
        """See Server."""
        deadline = time.monotonic() + BACK_SECONDS
        failure: TisError | None = None
        while time.monotonic() < deadline:
            try:
                with self._connect(self._url, LOOKED_SECONDS * 10) as client:
                    if client.live():
                        return ""
            except TisError as error:
                failure = error
            time.sleep(LOOKED_SECONDS)
        self._gone = True
        raise Unavailable(
            f"{self._url} no longer answers ({failure or 'it says that it is not live'}), for {BACK_SECONDS:g} s: it "
            "may have ended; look at its log"
        )

    def close(self) -> str:
        """The configurations of before: as a file says, or, where that was another one, as the server told it.

        A server that has gone has none: it reads its files when somebody starts it.
        """
        if self._gone and not self._takes_connections():
            return ""
        return "; ".join(said for model in self._before if model in self._changed and (said := self._give_back(model)))

    def _takes_connections(self) -> bool:
        try:
            with self._connect(self._url, LOOKED_SECONDS * 10) as client:
                client.live()
        except ConnectFailed:
            return False
        except TisError:
            return True
        return True

    def _give_back(self, model: str) -> str:
        before = self._before[model]
        try:
            self._load(model, None)
            with self._connect(self._url, limits.BENCH_CONNECT_SECONDS_MAX) as client:
                now = client.model(model).config()
            if canonical(now) != canonical(before):
                self.load(model, before)
        except TimedOut:
            if self._abandoned:
                return (
                    f"{self._url} has not loaded model '{model}' with its configuration of before within "
                    f"{BACK_SECONDS:g} s: it may still load the variant that was interrupted, and has that call behind "
                    f"it; look at GET /v2/models/{model}/config, or load the model again with POST "
                    f"/v2/repository/models/{model}/load"
                )
            return self._not_given_back(model, f"no answer within {limits.ANALYZE_LOAD_SECONDS_MAX:g} s")
        except TisError as error:
            with contextlib.suppress(TisError):  # its file cannot be loaded: what it had can be
                self.load(model, before)
                return ""
            return self._not_given_back(model, error.message)
        return ""

    def _not_given_back(self, model: str, why: str) -> str:
        return (
            f"model '{model}' at {self._url} could not be given back its configuration ({why}): load it again "
            f"with POST /v2/repository/models/{model}/load"
        )


def _check_protocol(client: Client, address: Address) -> None:
    """Raises Unavailable where something else than a server of KServe's protocol 2 answers."""
    try:
        told = client.metadata()
    except (ConnectFailed, TimedOut, Unauthenticated, Forbidden):
        raise
    except TisError as error:
        said = " ".join(error.message.split())
        what = f"{said[:SAID_MAX]}..." if len(said) > SAID_MAX else said
    else:
        if isinstance(told, Mapping) and isinstance(told.get("name"), str):
            return
        what = "something without the server's name"
    remedy = (
        "name its port of gRPC, or leave -i grpc out"
        if address.grpc
        else "name its HTTP port, or add -i grpc for gRPC's"
    )
    raise Unavailable(
        f"{address} is no server of KServe's protocol 2 (asked what it is, it gave: {what}); is that the port of "
        f"its metrics, or of another program? {remedy[0].upper()}{remedy[1:]}"
    )
