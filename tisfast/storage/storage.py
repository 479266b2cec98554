"""Remote repositories as local folders: the face that the server asks, and the parts behind it.  Layer 3 (storage).

A sync of one URL: ask the store what it has; for each model fetch what the cache lacks, in threads; when all files of
the model are there and verified, show them in the repository's folder in one step, and note it in the manifest.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from tisfast.config.storage_settings import StorageSettings
from tisfast.errors import TisError
from tisfast.storage.blobs import Blobs
from tisfast.storage.location import Bucket, Location
from tisfast.storage.manifest import Manifests, key_of
from tisfast.storage.progress import DownloadProgress
from tisfast.storage.repository import Repository, RepositoryContext
from tisfast.storage.repository_view import RepositoryView, RunFolder
from tisfast.storage.threads import Threads

log = logging.getLogger("tisfast.storage")


class Storage:
    """The StorageFace of a server with remote repositories.  Event-loop thread only, but for making it."""

    def __init__(self, locations: Mapping[str, Location], settings: StorageSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._progress = DownloadProgress()
        self._threads = Threads(settings.downloads)
        self._runs: dict[Path, RunFolder] = {}
        self._blobs: dict[Path, Blobs] = {}
        self._repositories: dict[str, Repository] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._swept_at = -1  # changes of all repositories when the cache was swept last
        self._said: dict[str, dict[str, str]] = {}
        try:
            for url, location in locations.items():
                self._repositories[url] = self._open(location)
                self._locks[url] = asyncio.Lock()
        except BaseException:
            self.close()
            raise

    def _open(self, location: Location) -> Repository:
        root = self._root(location)
        if root not in self._blobs:
            self._blobs[root] = Blobs(root)
            self._runs[root] = RunFolder(root)
        blobs = self._blobs[root]
        view = RepositoryView(self._runs[root].path / key_of(location.key)[:16], blobs)
        place = RepositoryContext(blobs, Manifests(root), view, self._threads, self._progress, self._stop)
        return Repository(location, place, self._settings)

    def _root(self, location: Location) -> Path:
        kind = location.place.kind if isinstance(location.place, Bucket) else ""
        mount = self._settings.mounts.get(kind)
        return Path(mount, "tisfast") if mount else Path(self._settings.cache_dir)

    def folder(self, url: str) -> Path:
        """See StorageFace.folder."""
        repository = self._repositories.get(url)
        return repository.folder if repository is not None else Path(url)

    @property
    def remote(self) -> bool:
        """See StorageFace.remote."""
        return True

    async def sync(self, url: str, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """See StorageFace.sync."""
        repository = self._repositories.get(url)
        if repository is None:
            return {}
        async with self._locks[url]:
            self._progress.begin()
            began = time.monotonic()
            before = repository.fetched
            try:
                failed = await repository.sync(names)
            finally:
                self._progress.end()
            if repository.fetched > before:
                count, seconds = repository.fetched - before, time.monotonic() - began
                log.info("%s: %d files downloaded and verified in %.1f s", repository.location.shown, count, seconds)
            self._tell(url, failed)
            return failed

    def _tell(self, url: str, failed: Mapping[str, TisError]) -> None:
        """Each failure once, however often it comes again while we poll."""
        said = self._said.setdefault(url, {})
        for name, error in failed.items():
            if said.get(name) != str(error):
                log.error("failed to download '%s': %s", name, error, extra={"facts": {"model": name}})
        self._said[url] = {name: str(error) for name, error in failed.items()}

    async def refresh(self, names: Collection[str] | None = None) -> Mapping[str, TisError]:
        """See StorageFace.refresh."""
        results = await asyncio.gather(*(self.sync(url, names) for url in self._repositories), return_exceptions=True)
        failed: dict[str, TisError] = {}
        for result in results:
            if not isinstance(result, BaseException):
                failed.update(result)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        changes = sum(repository.changes for repository in self._repositories.values())
        if changes != self._swept_at:
            self._swept_at = changes
            await self._sweep()
        return failed

    async def _sweep(self) -> None:
        """Remove what no manifest names any more.  A bound on the cache: what its URLs have now."""
        for root, blobs in self._blobs.items():
            await self._threads.run(partial(blobs.sweep, Manifests(root).named))

    def close(self) -> None:
        """See StorageFace.close."""
        self._stop.set()
        for run in self._runs.values():
            run.close()
        for blobs in self._blobs.values():
            blobs.close()
        self._runs, self._blobs = {}, {}
