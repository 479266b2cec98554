"""Which model versions keep their answers, and by which keys.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tisfast import limits
from tisfast.config.model_config import LoadedConfig
from tisfast.engine.response_cache import LocalStore, ModelCache
from tisfast.repo.version_digest import version_digest

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime
    from tisfast.engine.response_cache import RemoteStore
    from tisfast.executor import DaemonExecutor

log = logging.getLogger("tisfast.models")
Store: TypeAlias = "LocalStore | RemoteStore"
SALT_BYTES: Final = 16


def _wanted(config: LoadedConfig) -> bool:
    return bool(config.as_dict.get("response_cache", {}).get("enable"))


def salt_of(store: Store | None, config: LoadedConfig, version: str, folder: Path) -> bytes:
    """The salt of a version's cache keys: of what it is, where others share the answers, else of this load.

    Reads the version's files; raises ConfigError.
    """
    if store is None or isinstance(store, LocalStore) or not _wanted(config):
        return os.urandom(SALT_BYTES)
    backend = config.backends.named(config.backend)
    beside = [Path(backend.module).parent] if backend is not None and backend.module else []
    return version_digest(config.name, version, config.as_dict, folder, *beside)


def keep_answers(
    runtime: Runtime,
    store: Store | None,
    config: LoadedConfig,
    salt: bytes | None = None,
    copies: DaemonExecutor | None = None,
) -> None:
    """Give the runtime of a version its cache, where it wants one and there is one.

    salt: see salt_of; None for an ensemble, whose answers hang on its steps' models: its keys are of this load.
    copies: threads for what is long to hash or copy; None: the loop's own.
    """
    signature = runtime.signature
    if not _wanted(config):
        return
    if store is None:
        log.warning(
            "the answers of '%s' version %s are not kept, though its configuration enables response_cache: the server "
            "has no cache (--cache-config)", signature.name, signature.version,
            extra={"facts": {"model": signature.name, "version": signature.version}},
        )  # fmt: skip
        return
    signature.copies_regions = signature.copies_devices = True  # what is looked up must be what is computed
    runtime.cache = _model_cache(
        store, config, signature.version, salt or os.urandom(SALT_BYTES), partial(in_thread, copies)
    )


def _model_cache(
    store: Store, config: LoadedConfig, version: str, salt: bytes, threads: Callable[..., None]
) -> ModelCache:
    if isinstance(store, LocalStore):
        return ModelCache(store, salt, int.from_bytes(os.urandom(8), "little"), threads=threads)
    return ModelCache(store, salt, label=f"tisfast:{config.name}:{version}:".encode(), threads=threads)


def in_thread(copies: DaemonExecutor | None, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """See engine/response_cache.pxd.  What fails is as good as not kept, and so is what finds too much waiting."""
    if copies is not None and copies.waiting >= limits.COPIES_WAITING_MAX:
        done(None)
        return

    def tell(future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            log.error("a request or an answer could not be copied or hashed beside the loop", exc_info=error)
        done(None if error is not None else future.result())

    asyncio.get_running_loop().run_in_executor(copies, work).add_done_callback(tell)
