"""Which models there are and which of them can be asked.  Layer 3 (engine)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tisfast.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from tisfast.engine.served import Runtime


@dataclass(frozen=True)
class ModelEntry:
    """One line of the repository index (row 6.01).  version "" when a model never had one; state as Triton names it."""

    name: str
    version: str
    state: str
    reason: str


class Registry:
    """Model versions by name.  Event-loop thread only."""

    def __init__(self, *, strict_readiness: bool = True) -> None:
        self._runtimes: dict[str, dict[str, Runtime]] = {}
        self._newest: dict[str, Runtime] = {}
        self._entries: dict[tuple[str, str], ModelEntry] = {}
        self._strict_readiness = strict_readiness
        self._live = False
        self._stopping = False

    # ---- written by the supervisor

    def declare(self, name: str, version: str, state: str, reason: str = "") -> None:
        """State of a model version that may have no runtime: LOADING, UNAVAILABLE ..."""
        self._entries[name, version] = ModelEntry(name, version, state, reason)

    def add(self, runtime: Runtime) -> None:
        """A model version is loaded; it replaces an older runtime of the same version."""
        name, version = runtime.signature.name, runtime.signature.version
        self._runtimes.setdefault(name, {})[version] = runtime
        self._newest[name] = max(self._runtimes[name].values(), key=lambda r: int(r.signature.version))
        self.declare(name, version, "READY")

    def remove(self, runtime: Runtime, reason: str = "unloaded") -> None:
        """A model version is no longer served."""
        name, version = runtime.signature.name, runtime.signature.version
        versions = self._runtimes[name]
        del versions[version]
        self.declare(name, version, "UNAVAILABLE", reason)
        if versions:
            self._newest[name] = max(versions.values(), key=lambda r: int(r.signature.version))
        else:
            del self._runtimes[name], self._newest[name]

    def set_live(self, live: bool) -> None:
        """The server has initialised (row 26.01)."""
        self._live = live

    def set_stopping(self) -> None:
        """The server drains: not ready from now on, still live (row 26.06)."""
        self._stopping = True

    # ---- read by fronts

    def resolve(self, name: str, version: str = "") -> Runtime:
        """The runtime to ask; version "" means the newest.  Raises with row 1.08's texts."""
        if not version:
            runtime = self._newest.get(name)
            if runtime is not None:
                return runtime
        else:
            runtime = self._runtimes.get(name, {}).get(version)
            if runtime is not None:
                return runtime
        raise self._unresolved(name, version)

    def _unresolved(self, name: str, version: str) -> NotFound | Unavailable:
        known = [entry for entry in self._entries.values() if entry.name == name]
        prefix = f"Request for unknown model: '{name}'"
        if not known:
            return NotFound(f"{prefix} is not found")
        if not version:
            return NotFound(f"{prefix} has no available versions")
        if any(entry.version == version for entry in known):
            return Unavailable(f"{prefix} version {version} is not at ready state")
        return NotFound(f"{prefix} version {version} is not found")

    def knows(self, name: str) -> bool:
        """Whether any repository has a model of that name, served or not."""
        return any(entry.name == name for entry in self._entries.values())

    def runtimes(self) -> list[Runtime]:
        """All that can be asked, by name and version."""
        return [
            versions[version] for _, versions in sorted(self._runtimes.items()) for version in sorted(versions, key=int)
        ]

    def versions(self, name: str) -> list[str]:
        """Versions of a model that can be asked, ascending."""
        return sorted(self._runtimes.get(name, {}), key=int)

    def models(self) -> list[ModelEntry]:
        """The repository index, by name and version."""
        return sorted(self._entries.values(), key=lambda e: (e.name, int(e.version or 0)))

    def live(self) -> bool:
        """Row 26.01."""
        return self._live

    def ready(self) -> bool:
        """Row 26.02: with strict readiness, every model version is READY and every instance of it is up."""
        if not self._live or self._stopping:
            return False
        if not self._strict_readiness:
            return True
        return all(entry.state == "READY" for entry in self._entries.values()) and all(
            runtime.ready for runtime in self.runtimes()
        )
