"""Of what files figures were measured: as long as they stay as they are, so does this.  Layer 5 (analyze)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tisfast.repo.snapshot import entry_of, snapshot

DIGEST_BYTES: Final = 16


def folder_fingerprint(folder: Path) -> Mapping[str, Any]:
    """Of a model's folder: what snapshot sees there.  Raises ConfigError for more files than are looked at."""
    return _told(snapshot(folder).entries)


def files_fingerprint(names: Iterable[str]) -> Mapping[str, Any]:
    """Of input data: files, or folders of them; they may be there or not.  Raises ConfigError."""
    found: dict[str, Any] = {}
    for name in names:
        path = Path(name).resolve()
        found[str(path)] = folder_fingerprint(path) if path.is_dir() else _told([entry_of(path)])
    return found


def _told(entries: Iterable[tuple[str, int, int, int]]) -> Mapping[str, Any]:
    """Names, sizes and times; not the inode, which differs where the same disk is mounted again."""
    seen = [(path, size, mtime_ns) for path, size, mtime_ns, _ in entries]
    digest = hashlib.blake2b(json.dumps(seen).encode(), digest_size=DIGEST_BYTES).hexdigest()
    return {"files": len(seen), "bytes": sum(max(size, 0) for _, size, _ in seen), "digest": digest}
