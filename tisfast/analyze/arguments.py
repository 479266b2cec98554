"""The command line of `tisfast analyze`; what it does not know goes to bench's.  Layer 5 (analyze)."""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, NoReturn

from tisfast import limits
from tisfast.analyze.aims import GPU_MEMORY, MEMORY, THROUGHPUT, Aims, Constraint, metric
from tisfast.analyze.checkpoint import MODES
from tisfast.analyze.model_analyzer import apart, flags_of, folder_of
from tisfast.analyze.several import Varied, space_of, what_is_varied
from tisfast.analyze.space import Automatic, Load, Space, numbers, powers
from tisfast.analyze.typed import bench_flags, given_by, merged
from tisfast.bench.arguments import read as read_bench
from tisfast.bench.asked import Asked, Data
from tisfast.bench.flags import parser as bench_parser
from tisfast.bench.server_processes import is_here
from tisfast.errors import ConfigError

USAGE: Final = "tisfast analyze -m MODEL (--model-repository FOLDER | -u HOST:PORT) [options]"
DESCRIBES: Final = """Find the configuration of a model that is best for an aim, by measuring variants of it.

  tisfast analyze -m resnet --model-repository models
  tisfast analyze -m resnet --model-repository models --latency-budget 50 --instances 1:4 --max-batch-sizes 1,8,32
  tisfast analyze -m resnet -u localhost:8000 --queue-delays 0,500,2000
  tisfast analyze -f config.yaml

Flags of `tisfast bench` that say what is sent and how it is measured are taken, too: -i, -b, -x, -H, --input-data,
--shape, -p, -s, -r, --stop and others.  `tisfast docs analyze` says more.
"""
WINDOW: Final = ("-p", "1000")
"""Milliseconds of a window, where the user says nothing: many variants are measured."""
SEARCHES: Final = ("quick", "brute", "bayesian")
NOT_BENCHS: Final = {
    "concurrency_range": "write --concurrency with all levels, as 1,2,4 or 1:8",
    "old_concurrency": "write --concurrency",
    "old_limit": "write --concurrency",
    "old_dynamic": "write --concurrency",
    "request_rate_range": "write --request-rate with all levels",
    "request_intervals": "variants are compared at levels of concurrency or of a request rate",
    "request_rate_ramp": "variants are compared at levels of concurrency or of a request rate",
    "fixed_schedule": "variants are compared at levels of concurrency or of a request rate",
    "periodic_concurrency_range": "variants are compared at levels of concurrency or of a request rate",
    "binary_search": "all levels of a variant are measured; give --latency-budget",
    "latency_threshold": "give --latency-budget",
    "csv": "results.csv is in the output directory",
    "verbose_csv": "results.csv is in the output directory",
    "json": "checkpoint.json in the output directory has all figures",
    "report": "report.html is in the output directory",
    "openmetrics": "results.csv and checkpoint.json in the output directory have the figures",
    "profile_export_file": "measure the winner with tisfast bench for its single requests",
    "collect_metrics": "measure the winner with tisfast bench for the figures of its GPUs",
    "max_errors": "a variant whose requests fail is out",
    "service_kind": "only models of servers of KServe's protocol 2 have a configuration to search",
    "endpoint": "only models of servers of KServe's protocol 2 have a configuration to search",
    "replay": "variants are compared at levels of concurrency or of a request rate",
    "calibrate": "calibrate the client with tisfast bench; a row says when the client was the limit",
    "vs": "variants are compared with the default configuration, on one server",
    "fail_above": "variants are compared with the default configuration, on one server",
}
"""Flags of bench without a place here, and what to do."""
AUTOMATIC: Final = (
    ("instance-count", 1, 5),
    ("model-batch-size", 1, 128),
    ("concurrency", 1, 1024),
    ("request-rate", 16, 8192),
)
"""Bounds of what is searched by itself: name, least, most."""
SHORT: Final = {"csv": "-f", "old_concurrency": "-t", "old_limit": "-c", "old_dynamic": "-d"}


@dataclass(frozen=True)
class Given:
    """The command line.

    models: that are varied: several are served together, or, with formats, one at a time; repository: None for a
    server that runs; space: None for the automatic one; trials: variants that the bayesian search measures; confirm: so
    often the best ones are measured again; best: so many configurations are written; checkpoint: of MODES; bench: its
    flags by name, without the values of headers, which may be secrets; notes: what is told before it begins;
    first_seconds: that a variant's first request may take, 0: as long as others let expect.
    """

    asked: Asked
    models: tuple[str, ...]
    formats: bool
    repository: Path | None
    server_flags: tuple[str, ...]
    space: Space | None
    automatic: Automatic
    load: Load
    aims: Aims
    search: str
    trials: int
    confirm: int
    best: int
    output: Path
    checkpoint: str
    explain: bool
    bench: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    first_seconds: float = 0.0

    @property
    def data(self) -> list[Data]:
        """What is sent, of each model."""
        return [share.data for share in self.asked.mix] or [self.asked.data]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parser() -> argparse.ArgumentParser:
    """Of the command."""
    made = _Parser(
        prog="tisfast analyze",
        usage=USAGE,
        description=DESCRIBES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = made.add_argument_group("what is measured")
    group.add_argument(
        "-m", "--model-name", default="", metavar="MODEL", help="or A=3,B: several together, in this ratio"
    )
    group.add_argument("--mix", metavar="FILE", help="several together, with weights and data, as for tisfast bench")
    group.add_argument("--formats", metavar="A,B", help="models that are the same in other formats: one is the best")
    group.add_argument("-f", "--config-file", metavar="FILE", help="Model Analyzer's YAML keys; typed flags win")
    group.add_argument("--model-repository", metavar="FOLDER", help="a server is started with it, and ends with this")
    group.add_argument(
        "-u", "--url", default="", metavar="HOST:PORT", help="a running server with explicit model control"
    )
    group.add_argument(
        "--server-flag", action="append", default=[], metavar="FLAG", help="of the server that is started"
    )
    group = made.add_argument_group(
        "the search space; without any, instances 1:5 and max_batch_size 1,2,4..128; MODEL:VALUES are of that alone"
    )
    group.add_argument(
        "--instances", action="append", metavar="LIST", help="count of each instance group: 1,2,4 or 1:4 or 1:9:2"
    )
    group.add_argument(
        "--max-batch-sizes", action="append", metavar="LIST", help="max_batch_size, with dynamic batching"
    )
    group.add_argument(
        "--preferred-batch-sizes", action="append", metavar="LIST", help="a list of them; again for more"
    )
    group.add_argument("--queue-delays", action="append", metavar="LIST", help="max_queue_delay_microseconds")
    group.add_argument("--set", action="append", default=[], metavar="PATH=VALUES", help="any key: parameters.X=1,2,4")
    group.add_argument(
        "--concurrency", metavar="LIST", help="requests in flight; default 1,2,4..1024, until it is flat"
    )
    group.add_argument("--request-rate", metavar="LIST", help="requests a second, instead of a concurrency")
    group.add_argument("--search", default="quick", metavar="|".join(SEARCHES), help="climb, all, or Optuna's")
    group.add_argument("--trials", type=int, default=20, metavar="N", help="variants of --search bayesian; default 20")
    group.add_argument(
        "--confirm", type=int, default=3, metavar="N", help="the best and the default again, by turns; 3"
    )
    group.add_argument(
        "--first-request",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="a variant's first request may take; default 10 times the slowest so far, from 20 to 60",
    )
    group = made.add_argument_group("bounds of the search space where no setting is named; Model Analyzer's")
    for name, least, most in AUTOMATIC:
        group.add_argument(f"--run-config-search-min-{name}", type=int, metavar="N", help=f"default {least}")
        group.add_argument(f"--run-config-search-max-{name}", type=int, metavar="N", help=f"default {most}")
    group.add_argument("--request-rate-search-enable", action="store_true", help="search rates and no concurrency")
    group = made.add_argument_group("what is wanted")
    group.add_argument("--objective", action="append", default=[], metavar="METRIC[=WEIGHT]", help="default throughput")
    group.add_argument("--latency-budget", type=float, metavar="MS", help="p99 at most")
    group.add_argument("--min-throughput", type=float, metavar="N", help="inferences a second at least")
    group.add_argument("--max-memory", type=float, metavar="MB", help="of the started server's processes at most")
    group.add_argument("--max-gpu-memory", type=float, metavar="MB", help="of GPUs, where NVML tells it, at most")
    group.add_argument("--constraint", action="append", default=[], metavar="METRIC<=N", help="or METRIC>=N")
    group.add_argument("--margin", type=float, default=3.0, metavar="PERCENT", help="within it variants are alike; 3")
    group = made.add_argument_group("what comes out")
    group.add_argument("-o", "--output-directory", metavar="FOLDER", help="default analyze-MODEL")
    group.add_argument("--best", type=int, default=3, metavar="N", help="configurations that are written; default 3")
    group.add_argument("--checkpoint", default=MODES[0], metavar="|".join(MODES), help="of a run before in that folder")
    group.add_argument("--explain", action="store_true", help="say why the winner won")
    return made


def read_all(arguments: Sequence[str]) -> list[Given]:
    """One search after the other: a file may have models that are not served together.  Raises as read."""
    typed, _ = given_by(parser(), arguments)
    file = typed.get("config_file")
    names = apart(file) if file is not None and not typed.get("model_name") else []
    if file is None or not names:
        return [read(arguments)]
    folder = Path(typed.get("output_directory") or folder_of(file))
    return [read([*arguments, "-m", name, "-o", str(folder / f"analyze-{name}")]) for name in names]


def read(arguments: Sequence[str]) -> Given:
    """Raises ConfigError with what is wrong; SystemExit for --help."""
    given, rest, notes = _given(arguments)
    what = what_is_varied(given)
    if bool(given.model_repository) == bool(given.url):
        raise ConfigError(
            "give either --model-repository FOLDER, for a server that is started and ends with this, or -u HOST:PORT "
            "of a running one"
        )
    if given.server_flag and given.url:
        raise ConfigError("--server-flag is for the server that --model-repository has started; leave it out with -u")
    flags = _bench_flags(rest)
    url = ["-u", given.url] if given.url else []
    bench = read_bench(["-m", what.models[0], *url, *WINDOW, *rest])
    asked = what.of(bench.asked)
    space = space_of(given, what)
    output = Path(given.output_directory or f"analyze-{'-'.join(what.models)}")
    _not_within(output, given.model_repository)
    for name, value, choices in (("--search", given.search, SEARCHES), ("--checkpoint", given.checkpoint, MODES)):
        if value not in choices:
            raise ConfigError(f"{name} {value}: it is {' or '.join(choices)}")
    for name, count in (("--best", given.best), ("--trials", given.trials)):
        if count < 1:
            raise ConfigError(f"{name} {count}: it is at least 1")
    if not 0 <= given.confirm <= limits.ANALYZE_CONFIRM_MAX:
        raise ConfigError(f"--confirm {given.confirm}: it is from 0 to {limits.ANALYZE_CONFIRM_MAX}")
    if not 0 <= given.first_request <= limits.ANALYZE_LOAD_SECONDS_MAX:
        raise ConfigError(
            f"--first-request {given.first_request:g}: it is a number of seconds up to "
            f"{limits.ANALYZE_LOAD_SECONDS_MAX:g}"
        )
    if given.search == "bayesian" and importlib.util.find_spec("optuna") is None:
        raise ConfigError("--search bayesian needs Optuna, which is not installed: pip install 'tisfast[analyze]'")
    return Given(
        asked=asked,
        models=what.models,
        formats=what.formats,
        repository=Path(given.model_repository) if given.model_repository else None,
        server_flags=tuple(given.server_flag),
        space=space,
        automatic=_automatic(given),
        load=_load(given),
        aims=_aims(given, what, asked),
        search=given.search,
        trials=given.trials,
        confirm=given.confirm,
        best=given.best,
        output=output,
        checkpoint=given.checkpoint,
        explain=given.explain,
        bench=flags,
        notes=notes,
        first_seconds=given.first_request,
    )


def _given(arguments: Sequence[str]) -> tuple[Any, list[str], tuple[str, ...]]:
    """What is typed, and where it says nothing what the file of -f says; the flags of bench; what is to be told."""
    typed, rest = given_by(parser(), arguments)
    found = parser().parse_args([])
    trials, notes = typed.get("trials"), tuple[str, ...]()
    if "config_file" in typed:
        of_file = flags_of(typed["config_file"], typed.get("model_name", ""))
        named, unknown = given_by(parser(), of_file.own)
        rest = bench_flags([*((each,) for each in unknown), *of_file.bench], rest)
        typed, notes = merged(named, typed), of_file.notes
    for name, value in typed.items():
        setattr(found, name, value)
    if trials is not None and found.search != "bayesian":
        raise ConfigError(f"--trials {trials} is of --search bayesian, and the search is {found.search}; leave it out")
    return found, rest, notes


def _not_within(output: Path, repository: str | None) -> None:
    """A server takes each folder of a repository for a model's.  Raises ConfigError."""
    if repository and output.resolve().is_relative_to(Path(repository).resolve()):
        raise ConfigError(
            f"the output directory {output} is within the model repository {repository}, whose folders are models; "
            "name another one with -o"
        )


def _automatic(given: Any) -> Automatic:
    least, most = _range(given, "instance-count")
    if not 1 <= least <= most <= limits.ANALYZE_VALUES_MAX:
        raise ConfigError(
            f"--run-config-search-min-instance-count {least} and -max- {most}: write a least of 1 or more, and a most "
            f"of {limits.ANALYZE_VALUES_MAX} or less"
        )
    name = "model-batch-size"
    return Automatic(tuple(range(least, most + 1)), powers(f"--run-config-search-*-{name}", *_range(given, name)))


def _range(given: Any, name: str) -> tuple[int, int]:
    known = {each: (least, most) for each, least, most in AUTOMATIC}[name]
    found = [getattr(given, f"run_config_search_{end}_{name.replace('-', '_')}") for end in ("min", "max")]
    least, most = (default if value is None else value for value, default in zip(found, known, strict=True))
    return least, most


def _bench_flags(rest: Sequence[str]) -> Mapping[str, Any]:
    """Those that are given, by name.  Raises ConfigError for one without a place here."""
    named = bench_parser()
    found = named.parse_args(list(rest))
    for name, hint in NOT_BENCHS.items():
        if getattr(found, name) != named.get_default(name):
            flag = SHORT.get(name, f"--{name.replace('_', '-')}")
            raise ConfigError(f"{flag} of tisfast bench has no place here: {hint}")
    told = {name: value for name, value in vars(found).items() if value != named.get_default(name)}
    return {**told, **({"headers": [each.partition(":")[0] for each in found.headers]} if found.headers else {})}


def _load(given: Any) -> Load:
    """Levels that are named, or powers of two."""
    if given.request_rate is not None and given.concurrency is not None:
        raise ConfigError("give either --concurrency or --request-rate: variants are compared at one kind of load")
    if given.request_rate is not None:
        return Load(
            "request_rate",
            numbers("--request-rate", given.request_rate, least=0.001, most=limits.ANALYZE_RATE_MAX, whole=False),
            chosen=True,
        )
    if given.concurrency is not None:
        levels = numbers("--concurrency", given.concurrency, most=limits.BENCH_IN_FLIGHT_MAX)
        return Load("concurrency", levels, chosen=True)
    name = "request-rate" if given.request_rate_search_enable else "concurrency"
    levels = powers(f"--run-config-search-*-{name}", *_range(given, name))
    return Load(name.replace("-", "_"), tuple(map(float, levels)))


def _aims(given: Any, what: Varied, asked: Asked) -> Aims:
    """Latencies are those of each model, where several are served together."""
    together = what.together
    found = [_objective(each, together) for each in given.objective]
    weights = {each: weight for name, weight in found for each in what.each(name)} or {THROUGHPUT: 1.0}
    bounds = [_constraint(each, together) for each in given.constraint]
    for name, flag, value, most in (
        ("latency_p99", "--latency-budget", given.latency_budget, True),
        (THROUGHPUT, "--min-throughput", given.min_throughput, False),
        (MEMORY, "--max-memory", given.max_memory, True),
        (GPU_MEMORY, "--max-gpu-memory", given.max_gpu_memory, True),
    ):
        if value is not None:
            bounds.append(_bound(f"{flag} {value:g}", name, value, most))
    if given.url and MEMORY in (*weights, *(each.metric for each in bounds)):
        raise ConfigError(
            "memory is known of a server that is started with --model-repository; the processes of one at -u are not "
            "known, so leave that objective or bound out"
        )
    if given.url and not is_here(asked.address.host) and GPU_MEMORY in (*weights, *(each.metric for each in bounds)):
        raise ConfigError(
            f"GPU memory is known of a server on this machine, and {asked.address} is another one: leave that "
            "objective or bound out, or run this there"
        )
    if not (math.isfinite(given.margin) and given.margin >= 0):
        raise ConfigError(f"--margin {given.margin}: it is a number of percent, 0 or more")
    all_bounds = [each._replace(metric=name) for each in bounds for name in what.each(each.metric)]
    _can_be_kept(all_bounds)
    return Aims(tuple(weights.items()), tuple(all_bounds), given.margin)


def _can_be_kept(bounds: Sequence[Constraint]) -> None:
    """All of them together.  Raises ConfigError."""
    for most, least in product([each for each in bounds if each.most], [each for each in bounds if not each.most]):
        if most.metric == least.metric and most.limit < least.limit:
            raise ConfigError(f"{most.text} and {least.text}: no variant can keep both; change one of these bounds")


def _objective(text: str, models: Sequence[str]) -> tuple[str, float]:
    name, sign, weight = text.partition("=")
    try:
        value = float(weight) if sign else 1.0
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"--objective {text}: write METRIC or METRIC=WEIGHT, with a weight above 0")
    return metric(name, models), value


def _constraint(text: str, models: Sequence[str]) -> Constraint:
    for sign, most in (("<=", True), (">=", False)):
        name, found, limit = text.partition(sign)
        if found:
            try:
                return _bound(f"--constraint {text}", metric(name.strip(), models), float(limit), most)
            except ValueError:
                break
    raise ConfigError(f"--constraint {text}: write METRIC<=N or METRIC>=N, as latency_p99<=50")


def _bound(text: str, name: str, limit: float, most: bool) -> Constraint:
    if not (math.isfinite(limit) and limit > 0):
        raise ConfigError(f"{text}: the bound is a number above 0")
    return Constraint(name, limit, most)
