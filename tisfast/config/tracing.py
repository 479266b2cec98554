"""--trace-config and the older --trace-* flags.  Layer 2 (config).

--trace-config [triton,|opentelemetry,]KEY=VALUE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tisfast.config.whole_numbers import whole_number
from tisfast.errors import ConfigError

UINT32_MAX: Final = 2**32 - 1
LEVELS: Final = ("TIMESTAMPS", "TENSORS")
MODES: Final = ("triton", "opentelemetry")
_NO_MODE: Final = 'invalid value for trace mode option: {}. Available options are "triton" and "opentelemetry"'
OLD_LEVELS: Final = {"MIN": "TIMESTAMPS", "MAX": "TIMESTAMPS"}
_OLD_FLAGS: Final = (
    ("trace_file", "triton,file", "<filepath>"),
    ("trace_level", "level", "<OFF|TIMESTAMPS|TENSORS>"),
    ("trace_rate", "rate", "<rate value>"),
    ("trace_count", "count", "<count value>"),
    ("trace_log_frequency", "triton,log-frequency", "<log frequency value>"),
)


@dataclass(frozen=True)
class TriggerSettings:
    """Which requests are traced.  levels: of LEVELS, () for off; rate: each so manieth, 0 none of its own accord;
    count: -1 for no end; log_frequency: traces of one file, 0 for one file of all."""

    levels: tuple[str, ...] = ()
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0


@dataclass(frozen=True)
class OpenTelemetrySettings:
    """Where spans go and in what portions, with OpenTelemetry's own names and defaults."""

    url: str = "http://localhost:4318/v1/traces"
    resource: tuple[tuple[str, str], ...] = ()
    bsp_max_queue_size: int = 2048
    bsp_schedule_delay: int = 5000
    bsp_max_export_batch_size: int = 512

    def __post_init__(self) -> None:
        """Raises ConfigError for a URL that is none."""
        if not _is_url(self.url):
            raise _wrong(f"opentelemetry,url={self.url}", "is not an http or https URL")


@dataclass(frozen=True)
class TraceSettings:
    """All that the command line says of traces.  file: "" when none was given."""

    mode: str = "triton"
    trigger: TriggerSettings = field(default_factory=TriggerSettings)
    file: str = ""
    opentelemetry: OpenTelemetrySettings = field(default_factory=OpenTelemetrySettings)

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot work."""
        if self.mode == "opentelemetry" and "TENSORS" in self.trigger.levels:
            raise _wrong("level=TENSORS", "tensors are not traced in mode opentelemetry", "use level=TIMESTAMPS")
        if self.mode == "triton" and self.trigger.levels and not self.file:
            raise _wrong(
                f"level={self.trigger.levels[0]}",
                "trace file name is not given, so these traces would be written nowhere",
                "add --trace-config triton,file=<filepath>",
            )
        if self.mode == "triton" and self.trigger.levels and not self.trigger.rate:
            raise _wrong("rate=0", "sample rate must be non-zero", "rate=1 traces every request")


def read_trace_flags(
    entries: Sequence[str], old: Mapping[str, Any], environ: Mapping[str, str], notices: list[str]
) -> TraceSettings:
    """Settings that these flags ask for.  Raises ConfigError.

    entries: values of --trace-config; old: values of the deprecated flags, None where not given; environ: OTEL_BSP_*
    rules where no flag does; notices: gets what the log should say.
    """
    found = _Found(environ)
    for name, new, value in _OLD_FLAGS:
        if old.get(name) not in (None, []):
            notices.append(f"--{name.replace('_', '-')} is deprecated; use --trace-config {new}={value} instead")
            for each in old[name] if isinstance(old[name], list) else [old[name]]:
                found.take(f"{new}={each}")
    for entry in entries:
        found.take(entry)
    return found.settings()


class _Found:
    """The flags that were read so far."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._trigger: dict[str, int] = {}
        self._levels: list[str] = []
        self._resource: dict[str, str] = {}
        self._mode = "triton"
        self._file = ""
        self._url = OpenTelemetrySettings.url
        self._portions = {
            name: _of_variable(f"OTEL_{name.upper()}", value)
            for name in ("bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size")
            if (value := environ.get(f"OTEL_{name.upper()}"))
        }

    def take(self, entry: str) -> None:
        """One value of --trace-config."""
        name, equals, value = entry.partition("=")
        mode, comma, key = name.rpartition(",")
        if not equals or not value or not key:
            raise _wrong(entry, "is not of the form [MODE,]KEY=VALUE", "for instance triton,file=/tmp/trace.json")
        if comma and mode not in MODES:
            raise _wrong(entry, _NO_MODE.format(mode))
        {"": self._common, "triton": self._triton, "opentelemetry": self._opentelemetry}[mode](entry, key, value)

    def settings(self) -> TraceSettings:
        """The whole."""
        trigger = TriggerSettings(levels=tuple(dict.fromkeys(self._levels)), **self._trigger)
        otel = OpenTelemetrySettings(self._url, tuple(self._resource.items()), **self._portions)
        return TraceSettings(self._mode, trigger, self._file, otel)

    def _common(self, entry: str, key: str, value: str) -> None:
        if key == "mode":
            if value not in MODES:
                raise _wrong(entry, _NO_MODE.format(value))
            self._mode = value
        elif key == "level":
            level = OLD_LEVELS.get(value, value)
            if level not in (*LEVELS, "OFF"):
                raise _wrong(entry, f"invalid value for trace level option: {value}", "OFF, TIMESTAMPS or TENSORS")
            self._levels += [level] if level != "OFF" else []
        elif key == "rate":
            self._trigger["rate"] = _number(entry, value, 0, UINT32_MAX)
        elif key == "count":
            self._trigger["count"] = _number(entry, value, -1, 2**31 - 1)
        else:
            raise _wrong(entry, f"unknown setting {key!r}", "known: mode, level, rate, count")

    def _triton(self, entry: str, key: str, value: str) -> None:
        if key == "file":
            self._file = value
        elif key == "log-frequency":
            self._trigger["log_frequency"] = _number(entry, value, 0, UINT32_MAX)
        else:
            raise _wrong(entry, f"unknown setting {key!r} of mode triton", "known: file, log-frequency")

    def _opentelemetry(self, entry: str, key: str, value: str) -> None:
        if key == "url":
            self._url = value if "://" in value else f"http://{value}"
        elif key == "resource":
            name, equals, text = value.partition("=")
            if not equals:
                raise _wrong(entry, "a resource attribute is of the form key=value", "resource=service.name=mine")
            self._resource[name] = text
        elif key in ("bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size"):
            self._portions[key] = _number(entry, value, 1, UINT32_MAX)
        else:
            raise _wrong(entry, f"unknown setting {key!r} of mode opentelemetry", "known: url, resource, bsp_*")


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # of a port that is no number, or out of range, and of half an IPv6 address
        return False


def _of_variable(name: str, text: str) -> int:
    value = whole_number(text, UINT32_MAX)
    if not value:
        raise ConfigError(f"environment variable {name} must be 1 to {UINT32_MAX}, not {text!r:.60}")
    return value


def _number(entry: str, value: str, least: int, most: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise _wrong(entry, f"{value!r} is not a whole number") from None
    if not least <= number <= most:
        raise _wrong(entry, f"{value} is out of range [ {least}, {most} ]")
    return number


def _wrong(entry: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError(f"--trace-config {entry}: {message}", key="trace-config", hint=hint)
