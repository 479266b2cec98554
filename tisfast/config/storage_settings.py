"""Where remote repositories are kept, and what the environment says of stores.  Layer 2 (config)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tisfast import defaults, limits
from tisfast.errors import ConfigError

PREFIXES: Final = ("AWS_", "AZURE_", "GOOGLE_", "MLFLOW_", "TRITON_CLOUD_", "STORAGE_EMULATOR_HOST")
MOUNTS: Final = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "az": "TRITON_AZURE_MOUNT_DIRECTORY",
}
OFFLINE: Final = ("auto", "only", "never")


@dataclass(frozen=True)
class StorageSettings:
    """Settings of remote repositories.

    cache_dir: of all stores but those that `mounts` names (s3, gs, az) a folder for.  offline: what to do without the
    store, see docs/storage.md.  verify: hash what is in the cache at start.  downloads: files at one time.  variables:
    those of the environment that are about stores, and HOME.
    """

    cache_dir: str = ""
    offline: str = "auto"
    verify: bool = False
    downloads: int = defaults.STORAGE_DOWNLOADS
    mounts: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of downloads out of range."""
        if not 1 <= self.downloads <= limits.STORAGE_DOWNLOADS_MAX:
            raise ConfigError(
                f"--storage-downloads must be 1 to {limits.STORAGE_DOWNLOADS_MAX}, not {self.downloads}",
                key="storage-downloads",
            )


def read_storage(given: Mapping[str, object], environ: Mapping[str, str]) -> StorageSettings:
    """Read them from the command line's values and the environment."""
    home = environ.get("HOME") or os.path.expanduser("~")
    base = environ.get("XDG_CACHE_HOME") or str(Path(home, ".cache"))
    picked = {name: value for name, value in environ.items() if name.startswith(PREFIXES) and value}
    return StorageSettings(
        cache_dir=str(given["storage_cache_dir"] or Path(base, "tisfast", "storage")),
        offline=str(given["storage_offline"]),
        verify=bool(given["storage_verify"]),
        downloads=int(str(given["storage_downloads"])),
        mounts={kind: environ[name] for kind, name in MOUNTS.items() if environ.get(name)},
        variables={**picked, "HOME": home},
    )
