"""The face of storage that the server uses: local folders, made equal to remote ones when asked.  Layer 3 (storage)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tisfast.errors import TisError
from tisfast.storage.location import parse

if TYPE_CHECKING:
    from tisfast.config.storage_settings import StorageSettings


class StorageFace(Protocol):
    """Event-loop thread only.  Local repositories pass through: their folder is themselves, and nothing is fetched."""

    def folder(self, url: str) -> Path:
        """The local folder of what --model-repository names; there before the first `sync`, empty then."""

    @property
    def remote(self) -> bool:
        """Whether there is anything to fetch, ever."""

    async def sync(self, url: str, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """Make the folder of one repository equal to what the store has now, all of it or some models.

        A model changes in one step, when all its files are there and verified, or not at all.  Returns the models that
        could not be had, with reasons, which are logged; their old files stay.  Names that the store does not have are
        no error, and not there; models that it has beside them are there as empty folders, unless they were fetched
        before.  Raises TisError when the store itself could not be asked.
        """

    async def refresh(self, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """`sync` of all repositories; errors of a store are raised after the others are done."""

    def close(self) -> None:
        """Stop what is under way and give up the folders."""


class LocalOnly:
    """The StorageFace of a server whose repositories are all local: nothing to do."""

    def folder(self, url: str) -> Path:
        """The folder itself."""
        return Path(url)

    @property
    def remote(self) -> bool:
        """No."""
        return False

    async def sync(self, url: str, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """Nothing is fetched."""
        del url, names
        return {}

    async def refresh(self, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """Nothing is fetched."""
        del names
        return {}

    def close(self) -> None:
        """Nothing is held."""


def open_storage(paths: Sequence[str], settings: StorageSettings) -> StorageFace:
    """The storage of these repositories.  Raises ConfigError for a URL that names nothing and an unusable cache."""
    found = {path: location for path in paths if (location := parse(path)) is not None}
    if not found:
        return LocalOnly()
    from tisfast.storage.storage import Storage  # noqa: PLC0415 - brings HTTP, TLS and archives with it

    return Storage(found, settings)
