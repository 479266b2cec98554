"""--cache-config: where answers are kept.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tisfast import defaults, limits
from tisfast.config.whole_numbers import whole_number
from tisfast.errors import ConfigError

FLAG: Final = "cache-config"
LEGACY_FLAG: Final = "response-cache-byte-size"
FORM: Final = "--cache-config option format is '<cache name>,<setting>=<value>'. Got "
PORT_MAX: Final = 65535
DATABASE_MAX: Final = 65535
NUMBER_MAX: Final = 2**63 - 1
VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "host": ("TRITON_REDIS_HOST",),
    "port": ("TRITON_REDIS_PORT",),
    "user": ("TRITONCACHE_REDIS_USERNAME",),
    "password": ("TRITONCACHE_REDIS_PASSWORD",),
}
"""Environment variables that stand for redis settings which were not given."""


@dataclass(frozen=True)
class LocalCacheSettings:
    """Answers are kept in this process.  size_bytes: of all of them, with what is kept about them."""

    size_bytes: int

    def __post_init__(self) -> None:
        """Raises ConfigError for a size that cannot be."""
        _in_range("local", "size", self.size_bytes, limits.CACHE_BYTES_MIN, limits.CACHE_BYTES_MAX)


@dataclass(frozen=True)
class RedisTls:
    """TLS towards Redis; files in PEM, "" for none.  sni: name to ask for, "" for the host's."""

    cert: str = ""
    key: str = ""
    cacert: str = ""
    cacert_dir: str = ""
    sni: str = ""


@dataclass(frozen=True)
class RedisSettings:
    """Answers are kept in a Redis, for all servers that use it.

    Times in ms: socket_timeout is what a lookup may delay a request by, the wait for a connection included, which
    wait_timeout bounds further.
    """

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    connect_timeout_ms: int = defaults.REDIS_CONNECT_MS_MAX
    socket_timeout_ms: int = defaults.REDIS_WAIT_MS_MAX
    wait_timeout_ms: int = defaults.REDIS_WAIT_MS_MAX
    pool_size: int = defaults.REDIS_CONNECTIONS_MAX
    tls: RedisTls | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for numbers out of range."""
        _in_range("redis", "port", self.port, 1, PORT_MAX)
        _in_range("redis", "db", self.db, 0, DATABASE_MAX)
        _in_range("redis", "pool_size", self.pool_size, 1, limits.REDIS_POOL_LIMIT)
        for name in ("connect_timeout", "socket_timeout", "wait_timeout"):
            _in_range("redis", name, getattr(self, f"{name}_ms"), 1, limits.REDIS_WAIT_MS_LIMIT)

    @property
    def where(self) -> str:
        """HOST:PORT, for messages."""
        return f"{self.host}:{self.port}"


CacheSettings: TypeAlias = LocalCacheSettings | RedisSettings


def read_cache_flags(
    entries: Sequence[str], byte_size: int | None, environ: Mapping[str, str], notices: list[str]
) -> CacheSettings | None:
    """The cache that --cache-config and --response-cache-byte-size ask for; None for no cache.  Raises ConfigError."""
    if entries and byte_size is not None:
        raise ConfigError(
            f"Incompatible flags --{LEGACY_FLAG} and --{FLAG} both provided. Please provide one or the other.", key=FLAG
        )
    if byte_size is not None:
        return _of_legacy(byte_size, notices)
    caches: dict[str, dict[str, str]] = {}
    for entry in entries:
        name, key, value = _parts(entry)
        settings = caches.setdefault(name, {})
        if settings.setdefault(key, value) != value:
            raise ConfigError(f"--{FLAG} {name},{key} is given twice, with different values", key=FLAG)
    if len(caches) > 1:
        raise ConfigError(
            "found multiple cache configurations, but only a single cache is currently supported: " + ", ".join(caches),
            key=FLAG,
        )
    for name, settings in caches.items():
        return _READERS[name](settings, environ, notices)
    return None


def _of_legacy(byte_size: int, notices: list[str]) -> CacheSettings | None:
    if byte_size == 0:
        return None
    if not limits.CACHE_BYTES_MIN <= byte_size <= limits.CACHE_BYTES_MAX:
        raise ConfigError(
            f"--{LEGACY_FLAG}={byte_size} must be {limits.CACHE_BYTES_MIN} to {limits.CACHE_BYTES_MAX}",
            key=LEGACY_FLAG, hint="0 for no cache",
        )  # fmt: skip
    notices.append(
        f"--{LEGACY_FLAG} has been deprecated: it is the same as --{FLAG}=local,size={byte_size}, which says it in full"
    )
    return _local_of(byte_size, notices)


def _parts(entry: str) -> tuple[str, str, str]:
    name, comma, setting = entry.partition(",")
    key, equals, value = setting.partition("=")
    if not comma or not name:
        raise ConfigError(
            f"No cache specified. --{FLAG} option format is <cache name>,<setting>=<value>. Got {entry}", key=FLAG
        )
    if not equals or not key or not value:
        raise ConfigError(FORM + entry, key=FLAG)
    if name not in _READERS:
        raise ConfigError(
            f"unable to find 'libtritoncache_{name}.so' for cache: --{FLAG} {name} names no cache of tisfast",
            key=FLAG,
            hint=f"served: {', '.join(_READERS)}",
        )
    return name, key, value


def _local(settings: Mapping[str, str], _: Mapping[str, str], notices: list[str]) -> CacheSettings:
    if "size" not in settings:
        raise ConfigError(
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field.",
            key=FLAG, hint=f"--{FLAG}=local,size=BYTES",
        )  # fmt: skip
    for name, value in settings.items():
        if name != "size":  # Triton passes over them
            notices.append(
                f"--{FLAG} local,{name}={value} has no effect here, because the cache 'local' has one setting, 'size'"
            )
    return _local_of(_whole("local", "size", settings["size"]), notices)


def _local_of(size_bytes: int, notices: list[str]) -> LocalCacheSettings:
    found = LocalCacheSettings(size_bytes)
    if size_bytes <= limits.CACHE_ENTRY_BYTES:
        notices.append(
            f"the response cache of {size_bytes} bytes keeps no answer: each takes {limits.CACHE_ENTRY_BYTES} bytes "
            f"beside its own; give --{FLAG} local,size=BYTES for as many as are to be kept"
        )
    return found


_NUMBERS: Final = ("db", "pool_size")
_TIMES: Final = ("connect_timeout", "socket_timeout", "wait_timeout")
_TLS: Final = ("cert", "key", "cacert", "cacert_dir", "sni")


def _redis(settings: Mapping[str, str], environ: Mapping[str, str], _: list[str]) -> CacheSettings:
    _refuse_unknown("redis", settings, (*VARIABLES, *_NUMBERS, *_TIMES, "tls_enabled", *_TLS))
    found = {**_from_environment(environ), **settings}
    if "host" not in found or "port" not in found:
        raise ConfigError(
            "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' in "
            f"the configuration - e.g. tritonserver --{FLAG} redis,host=redis --{FLAG} redis,port=6379 "
            "--model-repository=/models ...",
            key=FLAG,
        )
    given: dict[str, Any] = {name: found[name] for name in ("host", "user", "password") if name in found}
    given.update({name: _whole("redis", name, found[name]) for name in ("port", *_NUMBERS) if name in found})
    given.update({f"{name}_ms": _whole("redis", name, found[name]) for name in _TIMES if name in found})
    return RedisSettings(**given, tls=_tls(settings))


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[each] for name, several in VARIABLES.items() for each in several if environ.get(each)}


def _tls(settings: Mapping[str, str]) -> RedisTls | None:
    word = settings.get("tls_enabled", "false")
    if word not in ("true", "false"):
        raise ConfigError(f"--{FLAG} redis,tls_enabled={word} is neither true nor false", key=FLAG)
    given = {name: settings[name] for name in _TLS if name in settings}
    if word == "true":
        return RedisTls(**given)
    if given:
        raise ConfigError(
            f"--{FLAG} redis,{next(iter(given))} needs TLS, which is off", key=FLAG, hint="add redis,tls_enabled=true"
        )
    return None


def _refuse_unknown(cache: str, settings: Mapping[str, str], known: Sequence[str]) -> None:
    for name in settings:
        if name not in known:
            raise ConfigError(
                f"--{FLAG} {cache},{name} is no setting of the cache '{cache}'", key=FLAG,
                hint=f"known: {', '.join(known)}",
            )  # fmt: skip


def _whole(cache: str, name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"--{FLAG} {cache},{name}={text}: {text!r} is not a whole number", key=FLAG)
    number = whole_number(text, NUMBER_MAX)
    if number is None:
        raise ConfigError(f"--{FLAG} {cache},{name}={text:.60} is above {NUMBER_MAX}", key=FLAG)
    return number


def _in_range(cache: str, name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"--{FLAG} {cache},{name}={value} must be {least} to {most}", key=FLAG)


_READERS: Final[dict[str, Callable[[Mapping[str, str], Mapping[str, str], list[str]], CacheSettings]]] = {
    "local": _local,
    "redis": _redis,
}
