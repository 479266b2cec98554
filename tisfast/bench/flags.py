"""The flags of `tisfast bench`: perf_analyzer's that are served, and those that are refused.  Layer 5 (bench)."""

from __future__ import annotations

import argparse
from typing import Any, Final, NoReturn

from tisfast.bench.tls_flags import add_tls
from tisfast.errors import ConfigError

USAGE: Final = "tisfast bench -m MODEL [-u HOST:PORT] [-i http|grpc] [--concurrency-range START:END:STEP] [options]"
DESCRIBES: Final = """Measure models of a server: tisfast, Triton, any of KServe's protocol 2, or OpenAI's endpoints.

The flags are perf_analyzer's.  `tisfast docs bench` says how to measure, and how to read each figure.

  tisfast bench -m add_sub --concurrency-range 1:8:2
  tisfast bench -m add_sub -i grpc -u localhost:8001 --request-rate-range 500
  tisfast bench -m llama --service-kind openai --endpoint v1/chat/completions --streaming
  tisfast bench compare before.json after.json
  tisfast bench capture trace.json traffic.jsonl
"""
OTHER_SERVERS: Final = "only servers of KServe's protocol 2 and of OpenAI's endpoints are measured"
REFUSED: Final[dict[str, str]] = {
    "--grpc-method": OTHER_SERVERS,
    "--model-signature-name": OTHER_SERVERS,
    "--triton-server-directory": "no server is started within the client (service kind triton_c_api)",
    "--model-repository": "no server is started within the client (service kind triton_c_api)",
    "--session-concurrency": "requests of service kind openai are single ones, conversations are not played",
    "--enable-mpi": "one client measures several models at once: --mix FILE",
}
"""perf_analyzer's flags that are not served, and why."""
NO_VALUE: Final = ("--enable-mpi",)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Refuse(argparse.Action):
    """A flag of perf_analyzer's that is not served."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name = self.option_strings[0]
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
    add_tls(made)
    _add_openai(made)
    _add_load(made)
    _add_replay(made)
    _add_tracing(made)
    _add_sequences(made)
    _add_measuring(made)
    _add_data(made)
    _add_versus(made)
    out = made.add_argument_group("what is written")
    out.add_argument("-f", dest="csv", default="", metavar="FILE", help="a CSV file with perf_analyzer's columns")
    out.add_argument("--verbose-csv", action="store_true", help="more columns in it")
    out.add_argument("--profile-export-file", default="", metavar="FILE", help="a JSON file with each request")
    out.add_argument("--json", default="", metavar="FILE", help="all figures as JSON, for `tisfast bench compare`")
    out.add_argument("--report", default="", metavar="FILE", help="one HTML page with charts, which loads nothing")
    out.add_argument("--openmetrics", default="", metavar="FILE", help="all figures in OpenMetrics' text form")
    out.add_argument("--no-live", action="store_true", help="no line on the terminal while it is measured")
    out.add_argument("-v", dest="verbose", action="count", default=0, help="a line for each window")
    refused = made.add_argument_group("refused")
    for name in REFUSED:
        nargs: Any = {"nargs": 0} if name in NO_VALUE else {}
        refused.add_argument(name, action=_Refuse, help=argparse.SUPPRESS, **nargs)
    return made


def _add_target(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what is measured")
    group.add_argument("-m", "--model-name", default="", metavar="MODEL", help="the model; it must be given")
    group.add_argument("--mix", metavar="FILE", help="tisfast's own: several models with weights, see docs")
    group.add_argument("-x", "--model-version", default="", metavar="VERSION", help="default: the server's choice")
    group.add_argument(
        "-u", "--url", default="", help="HOST:PORT or https://, grpcs://, ...; default localhost:8000, over gRPC :8001"
    )
    group.add_argument("-i", "--protocol", default="http", metavar="http|grpc", help="default http")
    group.add_argument("-H", dest="headers", action="append", default=[], metavar="NAME:VALUE", help="a header")
    group.add_argument("--streaming", action="store_true", help="decoupled models and openai: answers in a stream")
    group.add_argument("-a", "--async", dest="asynchronous", action="store_true", help="as perf_analyzer's; see docs")
    group.add_argument("--sync", action="store_true", help="as perf_analyzer's; see docs")
    group.add_argument("--bls-composing-models", default="", metavar="A:1,B", help="models whose statistics are added")


def _add_openai(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("servers of language models")
    group.add_argument("--service-kind", default="triton", metavar="triton|openai", help="default triton")
    group.add_argument("--endpoint", default="", metavar="PATH", help="of openai, such as v1/chat/completions")


def _add_load(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("the load; one of them")
    group.add_argument("--concurrency-range", metavar="START[:END[:STEP]]", help="requests in flight or a list: 1,4,16")
    group.add_argument("--request-rate-range", metavar="START[:END[:STEP]]", help="requests a second; or a list")
    group.add_argument("--request-intervals", metavar="FILE", help="µs from one request to the next, one a line")
    group.add_argument("--request-rate-ramp", metavar="START:END:SECONDS", help="tisfast's own: a rate that rises")
    group.add_argument("--fixed-schedule", action="store_true", help='at the "timestamp" (ms) of each step of the data')
    group.add_argument(
        "--periodic-concurrency-range", metavar="START:END[:STEP]", help="STEP more join, period by period"
    )
    group.add_argument("--request-period", type=int, help="responses of all present requests in a period, default 10")
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


def _add_replay(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("captured traffic; tisfast's own")
    group.add_argument("--replay", metavar="FILE", help="requests at their times, to their models; see docs")
    group.add_argument("--replay-speed", type=float, metavar="X", help="so many times as fast, default 1")


def _add_tracing(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("the server's trace settings meanwhile; behind it they are as they were")
    group.add_argument("--trace-level", action="append", default=[], metavar="OFF|TIMESTAMPS|TENSORS")
    group.add_argument("--trace-rate", type=int, metavar="N", help="every N-th request")
    group.add_argument("--trace-count", type=int, metavar="N", help="so many traces; -1: any number")
    group.add_argument("--log-frequency", type=int, metavar="N", help="traces to a file; 0: all to one")
    group.add_argument("--trace-file", metavar="PATH", help="on the server, where it may be changed")


def _add_sequences(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("sequences, of models with sequence_batching")
    group.add_argument("--num-of-sequences", type=int, help="open at one time at a rate, default 4")
    group.add_argument("--sequence-length", type=int, help="requests of each, default 20, or those of its data")
    group.add_argument("--sequence-length-variation", type=float, metavar="PERCENT", help="more or less, default 20")
    group.add_argument("--sequence-id-range", metavar="START[:END]", help="of their ids; END is not one of them")
    group.add_argument(
        "--serial-sequences", action="store_true", help="taken: a sequence always waits for its last answer"
    )


def _add_measuring(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("how it is measured")
    group.add_argument("-p", "--measurement-interval", type=int, metavar="MS", help="window; default 5000, --vs: 500")
    group.add_argument("--measurement-mode", default="time_windows", metavar="time_windows|count_windows")
    group.add_argument("--measurement-request-count", type=int, default=50, help="of count_windows")
    group.add_argument("-s", "--stability-percentage", type=float, default=10.0, help="three windows agree so far")
    group.add_argument("--stop", default="windows", metavar="windows|confidence", help="tisfast's own: how it ends")
    group.add_argument(
        "-r", "--max-trials", type=int, help="windows at most, default 10; --vs: pairs of them, default 30"
    )
    group.add_argument("--percentile", type=int, default=-1, help="compared instead of the average")
    group.add_argument("--max-errors", type=int, default=0, help="tisfast's own: more end with exit code 1")
    group.add_argument("--calibrate", action="store_true", help="tisfast's own: measure the client itself before")
    group.add_argument("--collect-metrics", action="store_true", help="GPU figures of the server's metrics")
    group.add_argument("--metrics-url", default="", help="HOST:PORT/metrics, default port 8002 of the server")
    group.add_argument("--metrics-interval", type=int, metavar="MS", help="default 1000")


def _add_versus(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("two servers by turns; tisfast's own")
    group.add_argument("--vs", metavar="URL", help="a second server, which is judged against that of -u")
    group.add_argument("--margin", type=float, metavar="PERCENT", help="within it both count as the same, default 5")
    group.add_argument("--fail-above", type=float, metavar="PERCENT", help="worse by more: exit code 4, default 5")


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
    group.add_argument("--shared-memory", default="none", metavar="none|system|cuda", help="where tensors lie")
    group.add_argument("--output-shared-memory-size", type=int, metavar="BYTES", help="of each output; default 102400")
    group.add_argument("--grpc-compression-algorithm", default="none", metavar="none|gzip|deflate", help="of requests")
    group.add_argument("--input-tensor-format", default="binary", metavar="binary|json")
    group.add_argument("--output-tensor-format", default="binary", metavar="binary|json")
