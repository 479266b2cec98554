"""Manifests of the cache: for each URL, which file of which model is which blob.  Layer 3 (storage)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tisfast import leases, limits
from tisfast.storage.blobs import Blob

FORMAT = 1


@dataclass(frozen=True)
class DownloadedFile:
    """A file of a model as it was downloaded.  size and tag: the store's, then."""

    size: int
    tag: str
    blob: Blob


@dataclass
class Manifest:
    """The manifest of one URL.  models: files by model and path; complete: it once held all that the store had.

    archive: tag of the archive whose content it is.
    """

    models: dict[str, dict[str, DownloadedFile]] = field(default_factory=dict)
    complete: bool = False
    archive: str = ""

    def blobs(self) -> Iterator[Blob]:
        """All that it names."""
        for files in self.models.values():
            for kept in files.values():
                yield kept.blob


def key_of(text: str) -> str:
    """A short name for a URL."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Manifests:
    """The manifests of one cache folder."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "manifests"

    def load(self, url: str) -> Manifest:
        """An empty one where there is none, or none that can be read: then everything is looked at anew."""
        try:
            data = json.loads((self._folder / f"{key_of(url)}.json").read_bytes())
            return _read(data) if data["format"] == FORMAT and data["url"] == url else Manifest()
        except (OSError, ValueError, KeyError, TypeError):
            return Manifest()

    def save(self, url: str, manifest: Manifest, names: Collection[str] | None = None) -> None:
        """Replace it in one step; where it says the same already, note only that it is used.

        names: the models that were looked at, None for all.  What another server has noted of others meanwhile stays.
        """
        with self._alone():
            if names is not None:
                noted = self.load(url)
                manifest.models.update((name, files) for name, files in noted.models.items() if name not in names)
                manifest.complete = manifest.complete or noted.complete
            self._write(url, manifest)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """For as long as it takes to read and write a manifest."""
        lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            leases.lock(lock, fcntl.LOCK_EX, f"writing in {self._folder}")
            yield
        finally:
            os.close(lock)

    def _write(self, url: str, manifest: Manifest) -> None:
        models = {
            name: {
                path: [kept.size, kept.tag, kept.blob.sha256, kept.blob.size, *kept.blob.seen]
                for path, kept in files.items()
            }
            for name, files in manifest.models.items()
        }
        data = {
            "format": FORMAT,
            "url": url,
            "complete": manifest.complete,
            "archive": manifest.archive,
            "models": models,
        }
        text = json.dumps(data).encode()
        target = self._folder / f"{key_of(url)}.json"
        if target.exists() and target.read_bytes() == text:
            os.utime(target)
            return
        descriptor, path = tempfile.mkstemp(dir=self._folder, prefix=".")
        try:
            with open(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path, target)
        except BaseException:
            os.unlink(path)
            raise

    def touch(self, url: str) -> None:
        """Note that the URL is still used."""
        path = self._folder / f"{key_of(url)}.json"
        if path.exists():
            os.utime(path)

    def named(self) -> set[str]:
        """The blobs of all URLs that were used lately; manifests of the others are removed."""
        found: set[str] = set()
        oldest = time.time() - limits.STORAGE_UNUSED_SECONDS_MAX
        for path in self._folder.glob(".*"):  # of somebody who was killed while writing
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        for path in self._folder.glob("*.json"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
                else:
                    found.update(blob.sha256 for blob in _read(json.loads(path.read_bytes())).blobs())
            except (OSError, ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)
        return found


def _read(data: Mapping[str, Any]) -> Manifest:
    """Raises KeyError, TypeError or ValueError for what is no manifest."""
    models = {
        str(name): {
            str(path): DownloadedFile(int(size), str(tag), Blob(str(sha256), int(nbytes), (int(inode), int(changed))))
            for path, (size, tag, sha256, nbytes, inode, changed) in files.items()
        }
        for name, files in data["models"].items()
    }
    return Manifest(models, bool(data["complete"]), str(data["archive"]))
