"""perf_analyzer's command line: what is done, and what is refused by name with the reason.  Layer 5 (bench)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from tisfast import limits
from tisfast.bench.results import Settings
from tisfast.bench.schedules import Intervals, Times, read_intervals
from tisfast.client.address import Address, parse_url
from tisfast.errors import BadRequest, ConfigError

USAGE: Final = "tisfast bench -m MODEL [-u HOST:PORT] [-i http|grpc] [--concurrency-range START:END:STEP] [options]"
DESCRIBES: Final = """Measure a model of a server: tisfast, Triton, or any that speaks KServe's protocol 2.

The flags are perf_analyzer's.  `tisfast docs bench` says how to measure, and how to read each figure.

  tisfast bench -m add_sub --concurrency-range 1:8:2
  tisfast bench -m add_sub -i grpc -u localhost:8001 --request-rate-range 500
"""
SEQUENCES: Final = "sequences are not made yet"
TLS: Final = "encrypted connections are not made yet; measure behind the proxy, or with perf_analyzer"
OTHER_SERVERS: Final = "only servers of KServe's protocol 2 are measured"
TRACES: Final = "change the server's trace settings with its own call (docs/http.md) before the measurement"
REFUSED: Final[dict[str, str]] = {
    "--service-kind": f"{OTHER_SERVERS}; its value may only be triton",
    "--endpoint": OTHER_SERVERS,
    "--grpc-method": OTHER_SERVERS,
    "--model-signature-name": OTHER_SERVERS,
    "--triton-server-directory": "no server is started within the client (service kind triton_c_api)",
    "--model-repository": "no server is started within the client (service kind triton_c_api)",
    "--periodic-concurrency-range": "periodic concurrency is not made yet",
    "--request-period": "periodic concurrency is not made yet",
    "--session-concurrency": "it belongs to service kind openai, and " + OTHER_SERVERS,
    "--fixed-schedule": "fixed schedules are not made yet",
    "--shared-memory": "its value may only be none: tensors go through the connection",
    "--output-shared-memory-size": "it belongs to --shared-memory, of which only none is served",
    "--num-of-sequences": SEQUENCES,
    "--sequence-length": SEQUENCES,
    "--sequence-length-variation": SEQUENCES,
    "--sequence-id-range": SEQUENCES,
    "--serial-sequences": SEQUENCES,
    "--grpc-compression-algorithm": "its value may only be none: messages are not compressed yet",
    "--ssl-grpc-use-ssl": TLS,
    "--ssl-grpc-root-certifications-file": TLS,
    "--ssl-grpc-private-key-file": TLS,
    "--ssl-grpc-certificate-chain-file": TLS,
    "--ssl-https-verify-peer": TLS,
    "--ssl-https-verify-host": TLS,
    "--ssl-https-ca-certificates-file": TLS,
    "--ssl-https-client-certificate-file": TLS,
    "--ssl-https-client-certificate-type": TLS,
    "--ssl-https-private-key-file": TLS,
    "--ssl-https-private-key-type": TLS,
    "--trace-file": TRACES,
    "--trace-level": TRACES,
    "--trace-rate": TRACES,
    "--trace-count": TRACES,
    "--log-frequency": TRACES,
    "--enable-mpi": "several models at once are not measured yet; start one tisfast bench for each",
}
"""perf_analyzer's flags that are not served, and why."""
HARMLESS: Final = {
    "--service-kind": ("triton",),
    "--shared-memory": ("none",),
    "--grpc-compression-algorithm": ("none",),
}
"""Values of those that ask for nothing."""
NO_VALUE: Final = ("--fixed-schedule", "--serial-sequences", "--ssl-grpc-use-ssl", "--enable-mpi")


class Given(NamedTuple):
    """The command line.  levels: (start, end, step)."""

    model: str
    version: str
    address: Address
    mode: str
    levels: tuple[float, float, float]
    settings: Settings
    intervals: Times | None
    headers: tuple[tuple[str, str], ...]
    batch_size: int
    input_data: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    string_length: int
    string_data: str
    parameters: dict[str, bool | int | str]
    binary_inputs: bool
    binary_outputs: bool
    connections: int
    seed: int
    max_errors: int
    composing: tuple[tuple[str, str], ...]
    csv: str
    verbose_csv: bool
    export: str
    json: str
    report: str
    collect_metrics: bool
    metrics_url: str
    metrics_interval_ms: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Refuse(argparse.Action):
    """A flag of perf_analyzer's that is not served."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name = self.option_strings[0]
        if values not in HARMLESS.get(name, ()):
            raise ConfigError(f"{name} is not served by tisfast bench: {REFUSED[name]}")


def parser() -> argparse.ArgumentParser:
    """Of the command.  Options may be abbreviated, as perf_analyzer's."""
    made = _Parser(
        prog="tisfast bench",
        usage=USAGE,
        description=DESCRIBES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Refused with the reason: " + ", ".join(sorted(REFUSED)),
    )
    _add_target(made)
    _add_load(made)
    _add_measuring(made)
    _add_data(made)
    out = made.add_argument_group("what is written")
    out.add_argument("-f", dest="csv", default="", metavar="FILE", help="a CSV file with perf_analyzer's columns")
    out.add_argument("--verbose-csv", action="store_true", help="more columns in it")
    out.add_argument("--profile-export-file", default="", metavar="FILE", help="a JSON file with each request")
    out.add_argument("--json", default="", metavar="FILE", help="all figures as JSON, for `tisfast bench compare`")
    out.add_argument("--report", default="", metavar="FILE", help="one HTML page with charts, which loads nothing")
    out.add_argument("-v", dest="verbose", action="count", default=0, help="a line for each window")
    refused = made.add_argument_group("refused")
    for name in REFUSED:
        nargs: Any = {"nargs": 0} if name in NO_VALUE else {}
        refused.add_argument(name, action=_Refuse, help=argparse.SUPPRESS, **nargs)
    return made


def _add_target(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what is measured")
    group.add_argument("-m", "--model-name", default="", metavar="MODEL", help="the model; it must be given")
    group.add_argument("-x", "--model-version", default="", metavar="VERSION", help="default: the server's choice")
    group.add_argument("-u", "--url", default="", help="HOST:PORT; default localhost:8000, over gRPC localhost:8001")
    group.add_argument("-i", "--protocol", default="http", metavar="http|grpc", help="default http")
    group.add_argument("-H", dest="headers", action="append", default=[], metavar="NAME:VALUE", help="a header")
    group.add_argument("--streaming", action="store_true", help="one stream a connection; decoupled models need it")
    group.add_argument("-a", "--async", dest="asynchronous", action="store_true", help="as perf_analyzer's; see docs")
    group.add_argument("--sync", action="store_true", help="as perf_analyzer's; see docs")
    group.add_argument("--bls-composing-models", default="", metavar="A:1,B", help="models whose statistics are added")


def _add_load(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("the load; one of them")
    group.add_argument("--concurrency-range", metavar="START[:END[:STEP]]", help="requests in flight, default 1")
    group.add_argument("--request-rate-range", metavar="START[:END[:STEP]]", help="requests a second")
    group.add_argument("--request-intervals", metavar="FILE", help="µs from one request to the next, one a line")
    group.add_argument("--request-distribution", default="constant", metavar="constant|poisson", help="of a rate")
    group.add_argument("--seed", type=int, default=0, help="tisfast's own: of Poisson's times and of random data")
    group.add_argument("--connections", type=int, default=0, help="tisfast's own: at most so many at a request rate")
    group.add_argument("--binary-search", action="store_true", help="find the greatest load below --latency-threshold")
    group.add_argument("-l", "--latency-threshold", type=int, default=0, metavar="MS", help="the sweep ends beyond")
    group.add_argument("--request-count", type=int, default=0, help="send so many, and nothing else")
    group.add_argument("--warmup-request-count", type=int, default=0, help="before, which do not count")
    group.add_argument("--max-threads", type=int, help="taken and without effect: one thread does all")
    group.add_argument("-t", dest="old_concurrency", type=int, help=argparse.SUPPRESS)
    group.add_argument("-c", dest="old_limit", type=int, help=argparse.SUPPRESS)
    group.add_argument("-d", dest="old_dynamic", action="store_true", help=argparse.SUPPRESS)


def _add_measuring(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("how it is measured")
    group.add_argument("-p", "--measurement-interval", type=int, default=5000, metavar="MS", help="of a window")
    group.add_argument("--measurement-mode", default="time_windows", metavar="time_windows|count_windows")
    group.add_argument("--measurement-request-count", type=int, default=50, help="of count_windows")
    group.add_argument("-s", "--stability-percentage", type=float, default=10.0, help="three windows agree so far")
    group.add_argument("--stop", default="windows", metavar="windows|confidence", help="tisfast's own: how it ends")
    group.add_argument("-r", "--max-trials", type=int, default=10, help="windows at most")
    group.add_argument("--percentile", type=int, default=-1, help="compared instead of the average")
    group.add_argument("--max-errors", type=int, default=0, help="tisfast's own: more end with exit code 1")
    group.add_argument("--collect-metrics", action="store_true", help="GPU figures of the server's metrics")
    group.add_argument("--metrics-url", default="", help="HOST:PORT/metrics, default port 8002 of the server")
    group.add_argument("--metrics-interval", type=int, metavar="MS", help="default 1000")


def _add_data(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what is sent")
    group.add_argument("-b", "--batch-size", type=int, default=1, help="samples in a request")
    group.add_argument("--input-data", action="append", default=[], metavar="random|zero|FOLDER|FILE")
    group.add_argument("-z", dest="zero", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--data-directory", default="", help=argparse.SUPPRESS)
    group.add_argument("--shape", action="append", default=[], metavar="NAME:D1,D2", help="of an input with -1")
    group.add_argument("--string-length", type=int, default=128, help="of random strings")
    group.add_argument("--string-data", default="", help="of all strings, instead of random letters")
    group.add_argument("--request-parameter", action="append", default=[], metavar="NAME:VALUE:TYPE")
    group.add_argument("--input-tensor-format", default="binary", metavar="binary|json")
    group.add_argument("--output-tensor-format", default="binary", metavar="binary|json")


def read(arguments: Sequence[str]) -> Given:
    """Raises ConfigError with what is wrong; SystemExit for --help."""
    given = parser().parse_args(arguments)
    if not given.model_name:
        raise ConfigError("Failed to parse -m (model name). The value must be specified.")
    _check_choices(given)
    mode, levels = _load(given)
    settings = _settings(given, mode, levels)
    _check_conflicts(given, mode, levels, settings)
    old = [*(["zero"] if given.zero else []), *([given.data_directory] if given.data_directory else [])]
    interval = 1000 if given.metrics_interval is None else _positive("--metrics-interval", given.metrics_interval)
    return Given(
        model=given.model_name,
        version=given.model_version,
        address=_address(given.url, given.protocol.lower() == "grpc"),
        mode=mode,
        levels=levels,
        settings=settings,
        intervals=None if given.request_intervals is None else _intervals(given.request_intervals),
        headers=tuple(_header(each) for each in given.headers),
        batch_size=_positive("-b", given.batch_size),
        input_data=(*given.input_data, *old),
        shapes=tuple(_shape(each) for each in given.shape),
        string_length=_positive("--string-length", given.string_length),
        string_data=given.string_data,
        parameters=dict(_parameter(each) for each in given.request_parameter),
        binary_inputs=given.input_tensor_format == "binary",
        binary_outputs=given.output_tensor_format == "binary",
        connections=given.connections,
        seed=given.seed,
        max_errors=given.max_errors,
        composing=_composing(given.bls_composing_models),
        csv=given.csv,
        verbose_csv=given.verbose_csv,
        export=given.profile_export_file,
        json=given.json,
        report=given.report,
        collect_metrics=given.collect_metrics,
        metrics_url=given.metrics_url,
        metrics_interval_ms=interval,
    )


def _check_choices(given: Any) -> None:
    for name, value, choices in (
        ("-i", given.protocol.lower(), ("http", "grpc")),
        ("--request-distribution", given.request_distribution, ("constant", "poisson")),
        ("--stop", given.stop, ("windows", "confidence")),
        ("--measurement-mode", given.measurement_mode, ("time_windows", "count_windows")),
        ("--input-tensor-format", given.input_tensor_format, ("binary", "json")),
        ("--output-tensor-format", given.output_tensor_format, ("binary", "json")),
    ):
        if value not in choices:
            known = " or ".join(choices)
            raise ConfigError(f"Failed to parse {name}. Unsupported value provided: '{value}'; it is {known}")


def _load(given: Any) -> tuple[str, tuple[float, float, float]]:
    old = given.old_concurrency is not None or given.old_dynamic or given.old_limit is not None
    modes = [given.concurrency_range is not None or old, given.request_rate_range is not None]
    if sum([*modes, given.request_intervals is not None]) > 1:
        raise ConfigError(
            "Cannot use more than one inference load mode: --concurrency-range, --request-rate-range, "
            "--request-intervals"
        )
    if given.request_intervals is not None:
        rate = Intervals(_intervals(given.request_intervals)).rate
        return "intervals", (rate, rate, 1.0)
    if given.request_rate_range is not None:
        return "request_rate", _range("--request-rate-range", given.request_rate_range, float)
    if given.concurrency_range is not None:
        return "concurrency", _range("--concurrency-range", given.concurrency_range, int)
    start = given.old_concurrency or 1
    return "concurrency", (start, given.old_limit or (0 if given.old_dynamic else start), 1)


def _range(name: str, text: str, kind: type[int] | type[float]) -> tuple[float, float, float]:
    parts = text.split(":")
    try:
        values = [kind(each) for each in parts]
    except ValueError:
        raise ConfigError(f"Failed to parse {name}. Invalid value provided: {text}") from None
    if len(values) > 3:
        raise ConfigError(f"Failed to parse {name}. The value does not match <start:end:step>: {text}")
    start = values[0]
    end = values[1] if len(values) > 1 else start
    step = values[2] if len(values) > 2 else 1
    if start <= 0 or end < 0 or step <= 0:
        raise ConfigError(f"Failed to parse {name}. Start and step are more than 0, the end is 0 or more: {text}")
    if end and (end - start) / step > limits.BENCH_LEVELS_MAX:
        raise ConfigError(f"{name}={text} has more than {limits.BENCH_LEVELS_MAX} levels")
    return start, end, step


def _settings(given: Any, mode: str, levels: tuple[float, float, float]) -> Settings:
    if given.asynchronous and given.sync:
        raise ConfigError("Cannot specify --async and --sync simultaneously.")
    if not (given.percentile == -1 or 1 <= given.percentile <= 99):
        raise ConfigError("Failed to parse --percentile. The value must be -1 for not reporting or in range (0, 100)")
    if given.stability_percentage < 0 or given.latency_threshold < 0:
        raise ConfigError("-s and -l are 0 or more")
    return Settings(
        asynchronous=given.asynchronous or given.streaming,
        streaming=given.streaming,
        measurement_mode=given.measurement_mode,
        window_ms=_positive("-p", given.measurement_interval),
        request_count=_not_negative("--request-count", given.request_count),
        warm_up_count=_not_negative("--warmup-request-count", given.warmup_request_count),
        measurement_request_count=_positive("--measurement-request-count", given.measurement_request_count),
        stop=given.stop,
        stability_percent=given.stability_percentage,
        trials=_positive("-r", given.max_trials),
        percentile=given.percentile,
        latency_threshold_ms=given.latency_threshold,
        concurrency_end=int(levels[1]) if mode == "concurrency" else 1,
        rate_end=levels[1] if mode == "request_rate" else 0.0,
        distribution=given.request_distribution,
        binary_search=given.binary_search,
        verbose=given.verbose,
    )


def _check_conflicts(given: Any, mode: str, levels: tuple[float, float, float], settings: Settings) -> None:
    start, end, _ = levels
    if given.streaming and given.protocol.lower() != "grpc":
        raise ConfigError("Streaming is only allowed with gRPC protocol: add -i grpc")
    if given.streaming and given.sync:
        raise ConfigError("can't use streaming with synchronous API")
    if end == 0 and settings.latency_threshold_ms == 0:
        raise ConfigError("The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously")
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
    if (given.metrics_url or given.metrics_interval is not None) and not given.collect_metrics:
        name = "--metrics-url" if given.metrics_url else "--metrics-interval"
        raise ConfigError(f"Must specify --collect-metrics when using the {name} option.")
    if given.request_parameter and given.protocol.lower() != "grpc":
        raise ConfigError("--request-parameter is only for gRPC: add -i grpc")
    if given.profile_export_file and Path(given.profile_export_file).exists():
        raise ConfigError(f"--profile-export-file: {given.profile_export_file} exists already, and is not written over")


def _address(url: str, grpc: bool) -> Address:
    text = url or ("localhost:8001" if grpc else "localhost:8000")
    try:
        found = parse_url(text if "://" in text else f"{'grpc' if grpc else 'http'}://{text}")
    except BadRequest as error:
        raise ConfigError(f"-u: {error.message}") from None
    if found.tls:
        raise ConfigError(f"-u {url}: {TLS}")
    return found._replace(grpc=grpc)


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
    if kind == "int" and value.lstrip("-").isdigit():
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


def _positive(name: str, value: int) -> int:
    if value <= 0:
        raise ConfigError(f"Failed to parse {name}. The value must be > 0, it is {value}")
    return value


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise ConfigError(f"Failed to parse {name}. The value must be >= 0, it is {value}")
    return value
