"""One remote repository: its models as the store has them, the cache has them and the server sees them.  Layer 3."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tisfast import limits
from tisfast.config.storage_settings import StorageSettings
from tisfast.errors import ConfigError, TisError
from tisfast.storage import store_layout
from tisfast.storage.archive import unpack
from tisfast.storage.blobs import Blob, Blobs, unusable
from tisfast.storage.location import Archive, Location
from tisfast.storage.manifest import DownloadedFile, Manifest, Manifests
from tisfast.storage.progress import DownloadProgress, spelled
from tisfast.storage.repository_view import RepositoryView
from tisfast.storage.source import Changed, RemoteFile, Source, Unreachable
from tisfast.storage.source_factory import open_source
from tisfast.storage.threads import Threads
from tisfast.storage.transfer import Download, fetch, key_for, pause

log = logging.getLogger("tisfast.storage")
T = TypeVar("T")
Files = Mapping[str, RemoteFile]


@dataclass(frozen=True)
class RepositoryContext:
    """Where a repository is kept and what it works with; all but the view is shared by those of one cache folder."""

    blobs: Blobs
    manifests: Manifests
    view: RepositoryView
    threads: Threads
    progress: DownloadProgress
    stop: threading.Event


class Repository:
    """One URL.  Event-loop thread only, one `sync` at a time."""

    def __init__(self, location: Location, place: RepositoryContext, settings: StorageSettings) -> None:
        self.location = location
        self._place = place
        self._settings = settings
        self._manifest = Manifest()
        self._away = False  # the store was not there at the start, nor since
        self._source: Source | None = None
        self.changes = 0
        """Files that came and models that went since the start: what makes sweeping the cache worth while."""
        self.fetched = 0
        """Files that were downloaded since the start."""

    @property
    def folder(self) -> Path:
        """The local folder that looks like it."""
        return self._place.view.folder

    async def sync(self, names: Collection[str] | None) -> dict[str, TisError]:
        """See StorageFace.sync."""
        try:
            await self._place.threads.run(self._place.blobs.hold)
            try:
                noted = await self._place.threads.run(lambda: self._place.manifests.load(self.location.key))
                self._manifest = noted if noted.models else self._manifest  # other servers write it, too
                failed = await self._sync(self._manifest, names)
                await self._place.threads.run(self._place.view.tidy)
                return failed
            finally:
                self._place.blobs.release()
        except OSError as error:
            raise unusable(self._place.blobs.root, error) from error

    async def _sync(self, manifest: Manifest, names: Collection[str] | None) -> dict[str, TisError]:
        if self._settings.offline == "only":
            return await self._from_cache(manifest, names, "--storage-offline=only")
        attempt = 0
        while True:
            try:
                listed = await self._place.threads.run(self._listed)
            except Unreachable as error:
                if self._settings.offline == "never" or not _enough(manifest, names) or not self._is_start(names):
                    raise
                if not self._away:
                    log.warning("%s; serving what the cache has of %s", error, self.location.shown)
                self._away = True
                return await self._from_cache(manifest, names, str(error))
            self._away = False
            failed = await self._become(manifest, listed, names)
            attempt += 1
            if attempt == limits.STORAGE_LISTINGS_MAX or not any(isinstance(e, Changed) for e in failed.values()):
                return failed
            log.info("%s changed while it was downloaded: listing it again", self.location.shown)

    def _is_start(self, names: Collection[str] | None) -> bool:
        """Nothing is shown yet, or this is a further part of a start without the store: models that are not shown."""
        shown = self._place.view.names
        return not shown or (self._away and names is not None and not any(name in shown for name in names))

    # ---- what the store has

    def _listed(self) -> list[RemoteFile]:
        """Ask the store, some times if need be.  Blocks."""
        failures = 0
        while True:
            try:
                self._source = open_source(self.location, self._settings.variables)
                return self._source.files()
            except Unreachable as error:
                failures += 1
                if failures == limits.STORAGE_LIST_ATTEMPTS_MAX:
                    raise
                log.debug("%s", error)
                pause(self._place.stop, failures)

    async def _become(
        self, manifest: Manifest, listed: list[RemoteFile], names: Collection[str] | None
    ) -> dict[str, TisError]:
        if isinstance(self.location.place, Archive):
            return await self._become_archive(manifest, listed[0])
        models = self._models({file.path: file for file in listed}, wrapped=False)
        wanted = {model: files for model, files in models.items() if names is None or model in names}
        came: list[RemoteFile] = []
        results = await asyncio.gather(*(self._model(manifest, came, *each) for each in wanted.items()))
        failed = {model: error for model, error in zip(wanted, results, strict=True) if error is not None}
        for gone in self._known(manifest) - set(models):
            if names is None or gone in names:
                self._forget(manifest, gone)
        if names is not None:
            self._place.view.announce(models)
        manifest.complete = manifest.complete or manifest.models.keys() == models.keys()
        await self._save(manifest, came, names)
        return failed

    def _models(self, files: Mapping[str, T], *, wrapped: bool) -> dict[str, dict[str, T]]:
        there = self.location
        return store_layout.models_of(files, model=there.model, last=there.last, wrapped=wrapped, shown=there.shown)

    def _known(self, manifest: Manifest) -> set[str]:
        return {*manifest.models, *self._place.view.names}

    def _forget(self, manifest: Manifest, name: str) -> None:
        self.changes += 1
        manifest.models.pop(name, None)
        self._place.view.hide(name)

    async def _save(
        self, manifest: Manifest, came: Sequence[RemoteFile] = (), names: Collection[str] | None = None
    ) -> None:
        """came: what was downloaded for it, which need not be noted by itself any more; names: as with sync."""
        await self._place.threads.run(lambda: self._place.manifests.save(self.location.key, manifest, names))
        await self._place.threads.run(lambda: self._forget_downloads(came))

    def _forget_downloads(self, files: Sequence[RemoteFile]) -> None:
        for file in files:
            self._place.blobs.forget(key_for(self.location.shown, file))

    # ---- one model

    async def _model(self, manifest: Manifest, came: list[RemoteFile], name: str, files: Files) -> TisError | None:
        """Fetch what is lacking, then show it; the error that kept it from being complete.  came: what was fetched."""
        try:
            store_layout.check_paths(files, f"{self.location.shown}: model '{name}'")
            found = await self._place.threads.run(lambda: self._found(manifest.models.get(name, {}), name, files))
            lacking = {path: file for path, file in files.items() if path not in found}
            if lacking:
                found.update(await self._fetch(name, lacking))
            await self._show(name, found)
        except TisError as error:
            return error
        except OSError as error:
            return unusable(self._place.blobs.root, error)
        manifest.models[name] = found
        came += lacking.values()
        return None

    def _found(self, before: Mapping[str, DownloadedFile], name: str, files: Files) -> dict[str, DownloadedFile]:
        """The files that the cache has, whole.  Blocks."""
        found = {}
        for path, file in files.items():
            kept = before.get(path)
            if kept is None or (kept.size, kept.tag) != (file.size, file.tag) or not file.tag:
                if not file.sha256:
                    continue
                kept = DownloadedFile(
                    file.size, file.tag, Blob(file.sha256, file.size, (0, 0))
                )  # from elsewhere, perhaps
            blob = self._intact(kept.blob, name)
            if blob is not None:
                found[path] = DownloadedFile(kept.size, kept.tag, blob)
        return found

    def _intact(self, blob: Blob, name: str) -> Blob | None:
        thorough = self._settings.verify and name not in self._place.view.names  # once, at the start
        intact = self._place.blobs.intact(blob, thorough=thorough, stopped=self._place.stop.is_set)
        if intact is None and blob.seen != (0, 0):
            log.warning("%s: a file of '%s' is gone from the cache or was damaged there", self.location.shown, name)
        return intact

    async def _fetch(self, name: str, files: Files) -> dict[str, DownloadedFile]:
        nbytes = sum(file.size for file in files.values())
        self._check_room(nbytes - sum(self._begun(file) for file in files.values()))
        log.info("downloading '%s' from %s: %d files, %s", name, self.location.shown, len(files), spelled(nbytes))
        self._place.progress.expect(nbytes)
        blobs = await every([self._download(file) for file in files.values()])
        return {
            path: DownloadedFile(file.size, file.tag, blob)
            for (path, file), blob in zip(files.items(), blobs, strict=True)
        }

    async def _download(self, file: RemoteFile) -> Blob:
        assert self._source is not None
        place = self._place
        errand = Download(place.blobs, self._source, self.location.shown, place.stop, place.progress.advance)
        blob = await place.threads.run(lambda: fetch(errand, file))
        self.fetched += 1
        self.changes += 1
        return blob

    def _begun(self, file: RemoteFile) -> int:
        """Bytes that an earlier attempt left of it."""
        return self._place.blobs.begun(key_for(self.location.shown, file))

    def _check_room(self, nbytes: int) -> None:
        free = shutil.disk_usage(self._place.blobs.root).free
        if free < nbytes:
            raise ConfigError(
                f"{self.location.shown}: {spelled(nbytes)} are to be downloaded, and {self._place.blobs.root} has room "
                f"for {spelled(free)}",
                key="storage-cache-dir",
                hint="make room, or name another folder with --storage-cache-dir",
            )

    async def _show(self, name: str, files: Mapping[str, DownloadedFile]) -> None:
        blobs = {path: kept.blob for path, kept in files.items()}
        if self._place.view.shows(name, blobs):
            return
        await self._place.threads.run(lambda: self._place.view.show(name, blobs))

    # ---- archives

    async def _become_archive(self, manifest: Manifest, file: RemoteFile) -> dict[str, TisError]:
        """An archive is one thing: it changes as a whole."""
        state = f"{file.tag} {file.size} {file.sha256}" if file.tag else ""
        models = await self._place.threads.run(lambda: self._unpacked(manifest, state))
        if models is None:
            archive = (await self._fetch(self.location.last, {file.path: file}))[file.path].blob
            models = await self._place.threads.run(lambda: self._unpack(file, archive))
        for gone in self._known(manifest) - set(models):
            self._forget(manifest, gone)
        for name, files in models.items():
            await self._show(name, files)
        manifest.models, manifest.archive, manifest.complete = models, state, True
        await self._save(manifest)
        return {}

    def _unpacked(self, manifest: Manifest, state: str) -> dict[str, dict[str, DownloadedFile]] | None:
        """The files that an earlier sync made of the same archive, if all of them are still whole.  Blocks."""
        if not state or manifest.archive != state:
            return None
        models: dict[str, dict[str, DownloadedFile]] = {}
        for name, files in manifest.models.items():
            whole = self._all_intact(name, files)
            if whole is None:
                return None
            models[name] = whole
        return models

    def _unpack(self, file: RemoteFile, archive: Blob) -> dict[str, dict[str, DownloadedFile]]:
        path = self._place.blobs.path(archive.sha256)
        blobs = unpack(path, file.path, self._place.blobs, self._place.stop)
        store_layout.check_paths(blobs, self.location.shown)
        self._forget_downloads([file])  # the next sweep takes it; another URL of the same archive may be reading it now
        models = self._models(blobs, wrapped=True)
        return {
            name: {path: DownloadedFile(blob.size, file.tag, blob) for path, blob in files.items()}
            for name, files in models.items()
        }

    # ---- without the store

    async def _from_cache(self, manifest: Manifest, names: Collection[str] | None, why: str) -> dict[str, TisError]:
        if not _enough(manifest, names):
            raise Unreachable(f"{self.location.shown} was never downloaded completely: nothing of it is served ({why})")
        await self._place.threads.run(lambda: self._place.manifests.touch(self.location.key))
        if names is not None:
            self._place.view.announce(manifest.models)
        failed: dict[str, TisError] = {}
        for model, files in manifest.models.items():
            if names is not None and model not in names:
                continue
            blobs = await self._place.threads.run(partial(self._all_intact, model, files))
            if blobs is None:
                failed[model] = Unreachable(f"{self.location.shown}: the cache has not all files of '{model}' ({why})")
            else:
                await self._show(model, blobs)
        return failed

    def _all_intact(self, name: str, files: Mapping[str, DownloadedFile]) -> dict[str, DownloadedFile] | None:
        found = {}
        for path, kept in files.items():
            blob = self._intact(kept.blob, name)
            if blob is None:
                return None
            found[path] = DownloadedFile(kept.size, kept.tag, blob)
        return found


def _enough(manifest: Manifest, names: Collection[str] | None) -> bool:
    """Whether the cache can stand for the store: it has all that the store had, or some of what is wanted."""
    if manifest.complete or names is None:
        return manifest.complete
    return not names or any(name in manifest.models for name in names)


async def every(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; the first error once all are done, so that nothing goes on unwatched."""
    results = await asyncio.gather(*work, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
