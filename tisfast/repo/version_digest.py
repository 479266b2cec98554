"""A digest of a model version that is the same on every machine with the same version.  Layer 3 (repo).

Servers that share a response cache must not give answers of an older model: what can change an answer and is known here
(the configuration, the files of the version) is part of every key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo import layout

DIGEST_BYTES = 32


def version_digest(name: str, version: str, config: dict[str, Any], *folders: Path) -> bytes:
    """Digest of a version.  config: normalised; folders: of the version, and of a backend that is not ours.

    Raises ConfigError.
    """
    digest = hashlib.blake2b(json.dumps([name, version, config], sort_keys=True).encode(), digest_size=DIGEST_BYTES)
    for folder, path in ((each, path) for each in folders for path in _files(each)):
        try:
            digest.update(json.dumps([path.relative_to(folder).as_posix(), *_facts(path)]).encode())
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read, which is part of the keys of a shared response cache: {error.strerror}"
            ) from error
    return digest.digest()


def _facts(path: Path) -> tuple[Any, ...]:
    """Content of small files; of large ones, which are read for seconds, size and time of change."""
    stat = path.stat()
    if stat.st_size > limits.FINGERPRINT_FILE_BYTES_MAX:
        return stat.st_size, stat.st_mtime_ns
    data = layout.read_file(path, limits.FINGERPRINT_FILE_BYTES_MAX)
    return stat.st_size, hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for name in sorted(names):
            count += 1
            if count > limits.FINGERPRINT_FILES_MAX:
                raise ConfigError(
                    f"{folder} has more than {limits.FINGERPRINT_FILES_MAX} files, which all are looked at for the "
                    "keys of a shared response cache",
                    hint="move what is no part of the model elsewhere, or switch response_cache off for this model",
                )
            path = Path(place, name)
            if layout.is_file(path):
                yield path
