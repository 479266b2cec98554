"""Which models there are and which of them can be asked.  Layer 3 (engine)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tisfast import limits
from tisfast.errors import BadRequest, NotFound, Unavailable
from tisfast.types import split_identity

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime

UNLOADED: Final = "unloaded"
"""Triton's reason of what was unloaded on purpose; clients and strict readiness go by it."""


@dataclass(frozen=True)
class ModelEntry:
    """One line of the repository index.

    version: "" when the model never had one; state: as Triton names it, "" of a model that was never to be loaded;
    namespace: "" without --model-namespacing; read: its configuration could be read, once: what was never a model takes
    no readiness away.
    """

    name: str
    version: str
    state: str
    reason: str
    namespace: str = ""
    read: bool = True

    @property
    def failed(self) -> bool:
        """It was to be loaded, and could not be."""
        return self.state == "UNAVAILABLE" and self.reason != UNLOADED


class Registry:
    """Model versions by name.  Event-loop thread only.

    With namespaces, models are told apart by namespace and name (types.identity_of).  Who asks for a mere name gets the
    only model that has it.
    """

    def __init__(self, *, strict_readiness: bool = True, namespaces: bool = False) -> None:
        self._namespaces = namespaces
        self._namesakes: dict[str, set[str]] = {}  # by name, where there are namespaces
        self._runtimes: dict[str, dict[str, Runtime]] = {}
        self._newest: dict[str, Runtime] = {}
        self._entries: dict[str, dict[str, ModelEntry]] = {}
        self._strict_readiness = strict_readiness
        self._live = False
        self._stopping = False
        self._unusable = ""

    # ---- written by the supervisor

    def know(self, names: Iterable[str]) -> None:
        """Models that lie in a repository, whether anybody wants them loaded or not: the index names them.

        Those that lie in none any more it forgets once they are unloaded.
        """
        present = set(names)
        for name in [name for name in self._entries if name not in present and self._rests(name)]:
            self._forget(name)
        for name in present:
            self._of(name)

    def _rests(self, name: str) -> bool:
        """Whether a model is neither served nor about to be, nor was meant to be."""
        return name not in self._runtimes and all(entry.reason == UNLOADED for entry in self._entries[name].values())

    def declare(self, name: str, version: str, state: str, reason: str = "", *, read: bool = True) -> None:
        """State of a model version that may have no runtime: LOADING, UNAVAILABLE ...  read: see ModelEntry."""
        self._of(name)[version] = self._entry(name, version, state, reason, read=read)

    def switch(self, name: str, runtimes: Iterable[Runtime]) -> None:
        """From now on exactly these answer for a model; those that did until now are UNLOADING, see `unloaded`."""
        served = {runtime.signature.version: runtime for runtime in runtimes}
        before = self._runtimes.pop(name, {})
        self._newest.pop(name, None)
        if served:
            self._runtimes[name] = served
            self._newest[name] = max(served.values(), key=lambda r: int(r.signature.version))
        entries = self._of(name)
        for version, entry in list(entries.items()):
            if version in before and version not in served:
                self.declare(name, version, "UNLOADING")
            elif entry.reason != UNLOADED and entry.state != "UNLOADING":
                del entries[version]  # of an attempt that is over
        for version in served:
            self.declare(name, version, "READY")

    def fail(self, name: str, versions: Iterable[str], reason: str, *, read: bool = True) -> None:
        """A load came to nothing.  What serves goes on, and says what was tried.

        read: see ModelEntry; once read, a model that fails stays one until it is unloaded.
        """
        serving = self._runtimes.get(name, {})
        entries = self._of(name)
        read = read or any(entry.failed and entry.read for entry in entries.values())
        for version in [version for version, entry in entries.items() if entry.state == "LOADING"]:
            del entries[version]
        for version in versions:
            if version or not serving:
                self.declare(name, version, "UNAVAILABLE", reason, read=read)
        for version in serving:
            self.declare(name, version, "READY", reason)

    def unloaded(self, name: str, version: str) -> None:
        """A version that was UNLOADING is unavailable now, unless it has a successor."""
        entry = self._entries.get(name, {}).get(version)
        if entry is not None and entry.state == "UNLOADING":
            self.declare(name, version, "UNAVAILABLE", UNLOADED)

    def add(self, runtime: Runtime) -> None:
        """A model version more is loaded; it replaces an older runtime of the same version."""
        name, version = runtime.signature.identity, runtime.signature.version
        self.switch(name, {**self._runtimes.get(name, {}), version: runtime}.values())

    def remove(self, runtime: Runtime) -> None:
        """A model version is no longer served."""
        name, version = runtime.signature.identity, runtime.signature.version
        self.switch(name, [each for each in self._runtimes[name].values() if each is not runtime])
        self.unloaded(name, version)

    def _of(self, name: str) -> dict[str, ModelEntry]:
        """The entries of a model's versions; from now on the model is known."""
        if self._namespaces and name not in self._entries:
            self._namesakes.setdefault(split_identity(name)[1], set()).add(name)
        return self._entries.setdefault(name, {})

    def _forget(self, name: str) -> None:
        del self._entries[name]
        if self._namespaces:
            self._namesakes[split_identity(name)[1]].discard(name)

    def _entry(
        self, name: str, version: str = "", state: str = "", reason: str = "", *, read: bool = True
    ) -> ModelEntry:
        namespace, plain = self.split(name)
        return ModelEntry(plain, version, state, reason, namespace, read)

    def split(self, identity: str) -> tuple[str, str]:
        """Namespace, "" where there are none, and name."""
        return split_identity(identity) if self._namespaces else ("", identity)

    def set_live(self, live: bool) -> None:
        """The server has initialised."""
        self._live = live

    def set_unusable(self, why: str) -> None:
        """The server could not initialise, and runs all the same: requests for models get this error."""
        self._live = False
        self._unusable = why

    def set_stopping(self) -> None:
        """The server drains: not ready from now on, still live."""
        self._stopping = True

    # ---- read by fronts

    def resolve(self, name: str, version: str = "") -> Runtime:
        """The runtime to ask; version "" means the newest.  Raises with Triton's texts."""
        if not version:
            runtime = self._newest.get(name)
            if runtime is not None:
                return runtime
        else:
            runtime = self._runtimes.get(name, {}).get(version)
            if runtime is not None:
                return runtime
        identity = self.identity(name)
        if identity != name:
            return self.resolve(identity, version)
        raise self._unresolved(name, version)

    def check_usable(self) -> None:
        """Raises Unavailable, with Triton's words, on a server that could not initialise."""
        if self._unusable:
            raise Unavailable(f"Server not ready: {self._unusable}")

    def identity(self, name: str) -> str:
        """The model that a name means: without namespaces the name itself.  Raises BadRequest if it means none or many.

        Models that were unloaded do not count where others of the name were not.
        """
        if not self._namespaces or name in self._entries:
            return name
        self.check_usable()
        namesakes = self._namesakes.get(name, set())
        found = [each for each in namesakes if len(namesakes) == 1 or self._is_wanted(each)]
        if not found:
            raise BadRequest(f"Request for unknown model: '{name}' is not found")
        if len(found) > 1:
            raise BadRequest(
                f"There are {len(found)} identifiers of model '{name}' in global map, model namespace must be provided "
                "to resolve ambiguity."
            )
        return found[0]

    def _unresolved(self, name: str, version: str) -> NotFound | Unavailable:
        self.check_usable()
        known = self._entries.get(name)
        prefix = f"Request for unknown model: '{name}'"
        if not known or not any(entry.read or entry.version for entry in known.values()):
            return NotFound(f"{prefix} is not found")
        if not version:
            return NotFound(f"{prefix} has no available versions")
        if version in known:
            return Unavailable(f"{prefix} version {version} is not at ready state")
        return NotFound(f"{prefix} version {version} is not found")

    def _is_wanted(self, name: str) -> bool:
        """Whether a model serves, or should: it is neither unloaded nor about to be."""
        entries = self._entries[name].values()
        return name in self._runtimes or any(each.reason != UNLOADED and each.state != "UNLOADING" for each in entries)

    def knows(self, name: str) -> bool:
        """Whether anybody has wanted a model of that name, whatever became of it."""
        return any(self._entries.get(each) for each in (name, *self._namesakes.get(name, ())))

    def runtimes(self) -> list[Runtime]:
        """All that can be asked, by name and version."""
        return [
            versions[version] for _, versions in sorted(self._runtimes.items()) for version in sorted(versions, key=int)
        ]

    def versions(self, name: str) -> list[str]:
        """Versions of a model that can be asked, ascending.  Raises BadRequest like `identity`."""
        return sorted(self._runtimes.get(self.identity(name), {}), key=int)

    def newest(self, name: str) -> str:
        """The version that answers, or would, when none is asked for; "" when there is none."""
        runtime = self._newest.get(name)
        return max(self._entries.get(name) or ("",), key=_number) if runtime is None else runtime.signature.version

    def away(self, name: str, version: str = "") -> ModelEntry | None:
        """The state of a known version, or of the newest, that cannot be asked because it is not loaded; else None."""
        entry = self._entries.get(name, {}).get(version or self.newest(name))
        return entry if entry is not None and entry.state != "READY" else None

    def states(self, name: str) -> list[ModelEntry]:
        """The index entries of one model's versions, ascending."""
        return sorted(self._entries.get(name, {}).values(), key=lambda e: _number(e.version))

    def models(self) -> list[ModelEntry]:
        """The repository index, by name and version."""
        names = sorted(self._entries)
        return [entry for name in names for entry in self.states(name) or [self._entry(name)]]

    def live(self) -> bool:
        """Whether the server is up."""
        return self._live

    def ready(self) -> bool:
        """With strict readiness, what was to be loaded is, and every instance of it is up.

        What could not even be read was never a model: it takes no readiness away, as in Triton.
        A model that serves is ready while, and after, another copy of it was tried: no client is to be sent away for
        that.
        """
        if not self._live or self._stopping:
            return False
        return not self._strict_readiness or next(self._unready(), None) is None

    def why_not_ready(self) -> str:
        """In words; "" of a server that is ready."""
        if self.ready():
            return ""
        if not self._live:
            return self._unusable or "the server has not initialised"
        return "the server is stopping" if self._stopping else listed("models that are not ready", self._unready())

    def failed(self) -> list[str]:
        """Models of which nothing serves that should, those included that could not even be read."""
        entries = self._entries.items()
        return [n for n, each in entries if n not in self._runtimes and any(entry.failed for entry in each.values())]

    def _unready(self) -> Iterator[str]:
        yield from (name for name in self._entries if self._missing(name))
        for name, versions in self._runtimes.items():
            if not all(runtime.ready for runtime in versions.values()):
                yield name

    def _missing(self, name: str) -> bool:
        """Whether nothing of a model serves that should."""
        entries = self._entries[name].values()
        return name not in self._runtimes and any(
            (entry.failed and entry.read) or entry.state == "LOADING" for entry in entries
        )


def listed(what: str, names: Iterable[str]) -> str:
    """A sentence's part that names things, as many as one can read."""
    found = sorted(names)
    more = f" and {len(found) - limits.NAMES_TOLD_MAX} more" if len(found) > limits.NAMES_TOLD_MAX else ""
    return f"{what}: {', '.join(found[: limits.NAMES_TOLD_MAX])}{more}"


def _number(version: str) -> int:
    return int(version or 0)
