"""perf_analyzer's command line: what is asked, and what is wrong with it.  Layer 5 (bench)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tisfast import limits
from tisfast.bench.against import GRPC_SCHEMES, Against, check_alone, read_against
from tisfast.bench.asked import Asked, Data, SequencesAsked
from tisfast.bench.encryption import Encryption
from tisfast.bench.files import is_stream
from tisfast.bench.flags import parser
from tisfast.bench.held import held
from tisfast.bench.level_flags import level_range, listed_levels
from tisfast.bench.mix_file import check_mix, read_mix, told_mix
from tisfast.bench.number_flags import check_duration, check_numbers, check_rate, is_whole
from tisfast.bench.openai_flags import check_openai
from tisfast.bench.replay_flags import read_replay
from tisfast.bench.results import Settings
from tisfast.bench.schedules import Intervals, Periodic, Times, read_intervals
from tisfast.bench.sent_flags import check_sent, check_used_data, check_used_pacing
from tisfast.bench.sequences import ID_MAX
from tisfast.bench.tls_flags import check_used, read_tls
from tisfast.bench.tracing import read_tracing
from tisfast.client.address import Address, parse_url
from tisfast.errors import BadRequest, ConfigError


class Files(NamedTuple):
    """What is written; "" for what is not."""

    csv: str
    verbose_csv: bool
    export: str
    json: str
    report: str
    openmetrics: str = ""

    def names(self) -> tuple[str, ...]:
        """Of all that is written."""
        return tuple(filter(None, (self.csv, self.export, self.json, self.report, self.openmetrics)))


class Metrics(NamedTuple):
    """The server's page of metrics.  url: "" for the default."""

    url: str
    interval_ms: int


class Given(NamedTuple):
    """The command line.

    live: shown on a terminal; calibrate: the client itself, before; second: of the server of --vs, `against`: how both
    are compared.
    """

    asked: Asked
    files: Files
    metrics: Metrics | None
    max_errors: int
    live: bool = True
    calibrate: bool = False
    against: Against | None = None
    second: Given | None = None


def read(arguments: Sequence[str]) -> Given:
    """Raises ConfigError with what is wrong; SystemExit for --help."""
    typed = parser().parse_args(arguments)
    if typed.url.startswith(GRPC_SCHEMES):
        typed.protocol = "grpc"
    for name in ("vs", "mix", "replay"):  # a script's variable that has no value: it would measure something else
        if getattr(typed, name) == "":
            raise ConfigError(f"--{name} is empty: write what it names, or leave it out")
    one = _given(typed, arguments)
    if not typed.vs:
        check_alone(typed)
        check_used(typed, [one.asked.address])
        return one
    against = read_against(typed, one.asked)
    _address(typed.vs, against.protocol == "grpc", typed.ssl_grpc_use_ssl, "--vs")
    second = argparse.Namespace(**{**vars(typed), "url": typed.vs, "protocol": against.protocol})
    try:
        other = _given(second, [*arguments, "-u", typed.vs, "-i", against.protocol])
    except ConfigError as error:
        raise ConfigError(f"--vs {typed.vs}: {error}") from None
    check_used(typed, [one.asked.address, other.asked.address])
    return one._replace(against=against, second=other)


def _given(given: argparse.Namespace, arguments: Sequence[str]) -> Given:
    if not given.model_name and not given.mix and not (given.replay and given.service_kind == "triton"):
        raise ConfigError("Failed to parse -m (model name). The value must be specified.")
    _check_choices(given)
    check_numbers(given)
    check_sent(given)
    check_used_data(given)
    check_openai(given)
    check_mix(given)
    replay = read_replay(given)
    intervals = None if given.request_intervals is None else _intervals(given.request_intervals)
    ramp = None if given.request_rate_ramp is None else _ramp(given.request_rate_ramp)
    periodic = None if given.periodic_concurrency_range is None else _periodic(given)
    mode, levels = _load(given, intervals, ramp, periodic)
    check_used_pacing(given, mode)
    listed = listed_levels(given)
    settings = _settings(given, mode, levels)
    _check_loads(given, mode, levels, settings)
    _check_conflicts(given)
    if ramp is not None or periodic is not None:
        settings = _counted(settings, int((ramp[0] + ramp[1]) / 2 * ramp[2]) if ramp else int(levels[1]))
    interval = 1000 if given.metrics_interval is None else _positive("--metrics-interval", given.metrics_interval)
    address = _address(given.url, given.protocol.lower() == "grpc", given.ssl_grpc_use_ssl)
    data = _data(given)
    mix = read_mix(given.mix, data) if given.mix else ()
    asked = Asked(
        address=address,
        tls=_tls(given, address),
        model=given.model_name or told_mix(mix) or Path(given.replay or "").name,
        version=given.model_version,
        mode=mode,
        levels=levels,
        settings=settings,
        listed=listed,
        headers=tuple(_header(each) for each in given.headers),
        batch_size=_positive("-b", given.batch_size),
        data=data,
        binary_inputs=given.input_tensor_format == "binary",
        binary_outputs=given.output_tensor_format == "binary",
        output_bytes=_output_bytes(given),
        on_gpu=given.shared_memory == "cuda",
        compression="" if given.grpc_compression_algorithm == "none" else given.grpc_compression_algorithm,
        intervals=intervals,
        ramp=ramp,
        fixed_schedule=given.fixed_schedule,
        periodic=periodic,
        sequences=_sequences(given),
        seed=_not_negative("--seed", given.seed),
        connections=_bounded("--connections", given.connections, limits.BENCH_CONNECTIONS_MAX),
        records=bool(given.profile_export_file),
        composing=_composing(given.bls_composing_models),
        arguments=tuple(arguments),
        endpoint=given.endpoint if given.service_kind == "openai" else "",
        mix=mix,
        replay=replay,
        tracing=read_tracing(given),
        held=held(given, mix) if given.json else {},
    )
    files = _files(given)
    metrics = Metrics(given.metrics_url, interval) if given.collect_metrics else None
    return Given(
        asked, files, metrics, _not_negative("--max-errors", given.max_errors), not given.no_live, given.calibrate
    )


def _files(given: Any) -> Files:
    found = Files(given.csv, given.verbose_csv, given.profile_export_file, given.json, given.report, given.openmetrics)
    names = [name for name in found.names() if not is_stream(name)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"two flags write {twice}, and the second would write over the first: name a file for each")
    return found


def _tls(given: Any, address: Address) -> Encryption | None:
    if given.calibrate and address.tls:
        raise ConfigError(f"--calibrate does not know what encryption costs, and {address} is encrypted: leave it out")
    return read_tls(given, address)


def _output_bytes(given: Any) -> int:
    """Of each output in shared memory, for all samples of a batch; 0 for none."""
    if given.shared_memory not in ("none", "system", "cuda"):
        raise ConfigError(f"Failed to parse --shared-memory. It is none, system or cuda, not '{given.shared_memory}'")
    if given.shared_memory == "none":
        if given.output_shared_memory_size is not None:
            raise ConfigError("--output-shared-memory-size belongs to --shared-memory system or cuda: give one")
        return 0
    size = 102400 if given.output_shared_memory_size is None else given.output_shared_memory_size
    return _positive("--output-shared-memory-size", size) * _positive("-b", given.batch_size)


def _data(given: Any) -> Data:
    names = [*given.input_data, *([given.data_directory] if given.data_directory else [])]
    return Data(
        files=tuple(each for each in names if each not in ("random", "zero")),
        zero=given.zero or "zero" in names,
        shapes=tuple(_shape(each) for each in given.shape),
        string_length=_positive("--string-length", given.string_length),
        string_data=given.string_data,
        parameters=dict(_parameter(each) for each in given.request_parameter),
    )


def _check_choices(given: Any) -> None:
    for name, value, choices in (
        ("-i", given.protocol.lower(), ("http", "grpc")),
        ("--request-distribution", given.request_distribution, ("constant", "poisson")),
        ("--grpc-compression-algorithm", given.grpc_compression_algorithm, ("none", "gzip", "deflate")),
        ("--stop", given.stop, ("windows", "confidence")),
        ("--measurement-mode", given.measurement_mode, ("time_windows", "count_windows")),
        ("--input-tensor-format", given.input_tensor_format, ("binary", "json")),
        ("--output-tensor-format", given.output_tensor_format, ("binary", "json")),
    ):
        if value not in choices:
            known = " or ".join(choices)
            raise ConfigError(f"Failed to parse {name}. Unsupported value provided: '{value}'; it is {known}")


def _counted(settings: Settings, count: int) -> Settings:
    """A load that sends so many requests and no more."""
    named = {
        "--request-count": settings.request_count > 0,
        "--warmup-request-count": settings.warm_up_count > 0,
        "--stop confidence": settings.stop == "confidence",
        "--measurement-mode count_windows": settings.measurement_mode == "count_windows",
    }
    name = next((name for name, used in named.items() if used), "")
    if name:
        raise ConfigError(f"{name} has no place in a load that says itself how many requests it sends: leave it out")
    return replace(settings, request_count=count)


def _load(
    given: Any, intervals: Times | None, ramp: tuple[float, float, float] | None, periodic: Periodic | None
) -> tuple[str, tuple[float, float, float]]:
    old = given.old_concurrency is not None or given.old_dynamic or given.old_limit is not None
    modes = {
        "--concurrency-range": given.concurrency_range is not None or old,
        "--request-rate-range": given.request_rate_range is not None,
        "--request-intervals": intervals is not None,
        "--request-rate-ramp": ramp is not None,
        "--fixed-schedule": given.fixed_schedule,
        "--periodic-concurrency-range": periodic is not None,
        "--replay": bool(given.replay),
    }
    if sum(modes.values()) > 1:
        chosen = " and ".join(name for name, used in modes.items() if used)
        raise ConfigError(f"Cannot use more than one inference load mode; these are given: {chosen}")
    if periodic is not None:
        return "periodic", (periodic.end, periodic.end, 1)
    if ramp is not None or given.fixed_schedule or given.replay:
        rate = 1.0 if ramp is None else ramp[1]  # of a schedule the data says it
        return "request_rate", (rate, rate, 1.0)
    if intervals is not None:
        rate = Intervals(intervals).rate
        check_rate("--request-intervals", given.request_intervals, rate)
        return "intervals", (rate, rate, 1.0)
    if given.request_rate_range is not None:
        return "request_rate", level_range("--request-rate-range", given.request_rate_range, float)
    if given.concurrency_range is not None:
        return "concurrency", level_range("--concurrency-range", given.concurrency_range, int)
    start = 1 if given.old_concurrency is None else _positive("-t", given.old_concurrency)
    end = 0 if given.old_dynamic else start
    if given.old_limit is not None:
        end = _bounded("-c", _positive("-c", given.old_limit), limits.BENCH_IN_FLIGHT_MAX)
    return "concurrency", (_bounded("-t", start, limits.BENCH_IN_FLIGHT_MAX), end, 1)


def _ramp(text: str) -> tuple[float, float, float]:
    try:
        start, end, seconds = (float(each) for each in text.split(":"))
    except ValueError:
        raise ConfigError(
            f"Failed to parse --request-rate-ramp. The value does not match <start:end:seconds>: {text}"
        ) from None
    if not (0 <= start < math.inf and 0 < end < math.inf and 0 < seconds < math.inf and (start + end) * seconds >= 2):
        raise ConfigError(
            f"--request-rate-ramp {text}: the start is 0 or more, the end and the seconds are more, and at least one "
            "request is due within them"
        )
    check_rate("--request-rate-ramp", text, max(start, end))
    if seconds > limits.BENCH_SCHEDULE_SECONDS_MAX:
        raise ConfigError(f"--request-rate-ramp {text}: it takes {limits.BENCH_SCHEDULE_SECONDS_MAX:g} s at most")
    return start, end, seconds


def _periodic(given: Any) -> Periodic:
    name, text = "--periodic-concurrency-range", given.periodic_concurrency_range
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(map(is_whole, parts)):
        raise ConfigError(f"Failed to parse {name}. The value does not match <start:end:step>: {text}")
    start, end, step = (int(each) for each in (*parts, "1")[:3])
    period = 10 if given.request_period is None else given.request_period
    try:
        found = Periodic(start, end, step, period)
    except BadRequest as error:
        raise ConfigError(error.message) from None
    if not given.streaming:
        more = "" if given.service_kind == "openai" else " and -i grpc"
        raise ConfigError(f"{name} counts the responses of a stream: add --streaming{more}")
    if end > limits.BENCH_IN_FLIGHT_MAX:
        raise ConfigError(f"{name} {text} has {end} requests under way; at most {limits.BENCH_IN_FLIGHT_MAX} can be")
    return found


def _sequences(given: Any) -> SequencesAsked:
    named = {
        "--num-of-sequences": given.num_of_sequences is not None,
        "--sequence-length": given.sequence_length is not None,
        "--sequence-length-variation": given.sequence_length_variation is not None,
        "--sequence-id-range": given.sequence_id_range is not None,
        "--serial-sequences": given.serial_sequences,
    }
    begin, end = 1, ID_MAX
    if given.sequence_id_range is not None:
        parts = given.sequence_id_range.split(":")
        if len(parts) > 2 or not all(map(is_whole, parts)):
            raise ConfigError(
                f"Failed to parse --sequence-id-range. The value does not match <start:end>: {given.sequence_id_range}"
            )
        begin = int(parts[0])
        end = int(parts[1]) if len(parts) > 1 else ID_MAX
    count = 4 if given.num_of_sequences is None else _positive("--num-of-sequences", given.num_of_sequences)
    found = SequencesAsked(
        count=_bounded("--num-of-sequences", count, limits.BENCH_IN_FLIGHT_MAX),
        length=given.sequence_length,
        variation=20.0 if given.sequence_length_variation is None else given.sequence_length_variation,
        id_begin=begin,
        id_end=end,
        named=next((name for name, used in named.items() if used), ""),
    )
    try:
        found.plan(1, ())
    except BadRequest as error:
        raise ConfigError(error.message) from None
    return found


def _settings(given: Any, mode: str, levels: tuple[float, float, float]) -> Settings:
    if given.asynchronous and given.sync:
        raise ConfigError("Cannot specify --async and --sync simultaneously.")
    if not (given.percentile == -1 or 1 <= given.percentile <= 99):
        raise ConfigError("Failed to parse --percentile. The value must be -1 for not reporting or in range (0, 100)")
    if not (math.isfinite(given.stability_percentage) and given.stability_percentage >= 0):
        raise ConfigError(f"Failed to parse -s. The value must be a number >= 0, it is {given.stability_percentage}")
    return Settings(
        asynchronous=given.asynchronous or given.streaming,
        streaming=given.streaming,
        measurement_mode=given.measurement_mode,
        window_ms=_positive("-p", _or(given.measurement_interval, 500 if given.vs else 5000)),
        request_count=_not_negative("--request-count", given.request_count),
        warm_up_count=_not_negative("--warmup-request-count", given.warmup_request_count),
        measurement_request_count=_positive("--measurement-request-count", given.measurement_request_count),
        stop=given.stop,
        stability_percent=given.stability_percentage,
        trials=_positive("-r", _or(given.max_trials, 30 if given.vs else 10)),
        percentile=given.percentile,
        latency_threshold_ms=_not_negative("-l", given.latency_threshold),
        concurrency_end=int(levels[1]) if mode == "concurrency" else 1,
        rate_end=levels[1] if mode == "request_rate" else 0.0,
        distribution=given.request_distribution,
        binary_search=given.binary_search,
        verbose=given.verbose,
        alternated=bool(given.vs),
    )


def _check_conflicts(given: Any) -> None:
    if given.streaming and given.protocol.lower() != "grpc" and given.service_kind == "triton":
        raise ConfigError("Streaming is only allowed with gRPC protocol: add -i grpc")
    if given.streaming and given.sync:
        raise ConfigError("can't use streaming with synchronous API")
    if (given.metrics_url or given.metrics_interval is not None) and not given.collect_metrics:
        name = "--metrics-url" if given.metrics_url else "--metrics-interval"
        raise ConfigError(f"Must specify --collect-metrics when using the {name} option.")
    if given.calibrate and given.streaming and given.service_kind == "triton":
        raise ConfigError("--calibrate measures requests that stand alone: leave it or --streaming out")
    if given.calibrate and (given.mix or given.replay):
        name = "--mix" if given.mix else "--replay"
        raise ConfigError(f"--calibrate repeats one answer, and those of {name} differ: leave one of them out")
    if given.request_parameter and given.protocol.lower() != "grpc":
        raise ConfigError("--request-parameter is only for gRPC: add -i grpc")
    if given.protocol.lower() == "grpc" and "json" in (given.input_tensor_format, given.output_tensor_format):
        name = "--input-tensor-format" if given.input_tensor_format == "json" else "--output-tensor-format"
        raise ConfigError(f"{name} json is only for HTTP: gRPC has no tensors as JSON, so leave it out or add -i http")
    if given.grpc_compression_algorithm != "none" and given.protocol.lower() != "grpc":
        raise ConfigError("--grpc-compression-algorithm is only for gRPC: add -i grpc")
    export = given.profile_export_file
    if export and Path(export).exists() and not is_stream(export):
        raise ConfigError(f"--profile-export-file: {given.profile_export_file} exists already, and is not written over")


def _check_loads(given: Any, mode: str, levels: tuple[float, float, float], settings: Settings) -> None:
    start, end, _ = levels
    if end == 0 and settings.latency_threshold_ms == 0:
        raise ConfigError("The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously")
    if mode in ("request_rate", "intervals") and not (given.fixed_schedule or given.replay):
        check_duration(settings, start)
    if settings.binary_search and settings.latency_threshold_ms == 0:
        raise ConfigError("The --latency-threshold cannot be 0 for binary search mode.")
    if settings.binary_search and (end == 0 or end < start):
        raise ConfigError("--binary-search needs a range whose end is above its start")
    if settings.request_count and end != start:
        raise ConfigError("--request-count not supported with multiple levels in one run")
    if settings.request_count and settings.request_count < start:
        what = "concurrency" if mode == "concurrency" else "request rate"
        raise ConfigError(f"--request-count can not be less than {what}")
    if settings.stop == "confidence" and (settings.request_count or settings.measurement_mode == "count_windows"):
        raise ConfigError("--stop confidence decides how many are sent: leave out --request-count and count_windows")
    if given.request_period is not None and given.periodic_concurrency_range is None:
        raise ConfigError("--request-period belongs to --periodic-concurrency-range, which is not given")
    if given.fixed_schedule or given.replay:
        _counted(settings, 1)
    if given.fixed_schedule and not any(each not in ("random", "zero") for each in given.input_data):
        raise ConfigError('--fixed-schedule needs --input-data FILE, whose steps have a "timestamp" in milliseconds')


def _address(url: str, grpc: bool, tls: bool, flag: str = "-u") -> Address:
    """tls: gRPC is encrypted whatever the URL says.  flag: that gave the URL, for errors."""
    text = url or ("localhost:8001" if grpc else "localhost:8000")
    try:
        found = parse_url(text if "://" in text else f"{'grpc' if grpc else 'http'}://{text}")
    except BadRequest as error:
        raise ConfigError(f"{flag}: {error.message}") from None
    return found._replace(grpc=grpc, tls=found.tls or (grpc and tls))


def _intervals(path: str) -> Times:
    try:
        return read_intervals(path)
    except BadRequest as error:
        raise ConfigError(error.message) from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"-H {text!r} is no header; write NAME:VALUE")
    return name.strip(), value.strip()


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, dims = text.rpartition(":")
    try:
        found = tuple(int(each) for each in dims.split(","))
    except ValueError:
        found = ()
    if not colon or not found or min(found) <= 0:
        raise ConfigError(f"--shape {text}: write NAME:D1,D2, with dimensions of 1 and more, without the batch's")
    return name, found


def _parameter(text: str) -> tuple[str, bool | int | str]:
    parts = text.split(":")
    name, value, kind = parts if len(parts) == 3 else ("", "", "")
    if kind == "int" and is_whole(value.removeprefix("-")):
        return name, int(value)
    if kind == "bool" and value.lower() in ("true", "false", "1", "0"):
        return name, value.lower() in ("true", "1")
    if kind == "string" and name:
        return name, value
    raise ConfigError(f"--request-parameter {text}: write NAME:VALUE:TYPE, where the type is int, bool or string")


def _composing(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for each in text.replace(" ", "").split(","):
        name, _, version = each.partition(":")
        if name:
            found.append((name, version))
    return tuple(found)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _positive(name: str, value: int) -> int:
    if value <= 0:
        raise ConfigError(f"Failed to parse {name}. The value must be > 0, it is {value}")
    return value


def _bounded(name: str, value: int, most: int) -> int:
    if _not_negative(name, value) > most:
        raise ConfigError(f"Failed to parse {name}. The value must be at most {most}, it is {value}")
    return value


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise ConfigError(f"Failed to parse {name}. The value must be >= 0, it is {value}")
    return value
