"""What was measured of one variant at one level: plain figures that a checkpoint keeps.  Layer 5 (analyze)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Final, Protocol

from tisfast.analyze.variants import Variant
from tisfast.bench.figures import PERCENTILES, server_parts, supported, throughput
from tisfast.bench.results import Measurement

LATENCIES: Final = ("avg", *(f"p{each}" for each in PERCENTILES))


@dataclass(frozen=True)
class Served:
    """What the server's statistics say of the same time: averages of a request, µs, and its executions."""

    queue_us: float
    compute_input_us: float
    compute_infer_us: float
    compute_output_us: float
    total_us: float
    inferences: int
    executions: int
    batch_sizes: Mapping[str, int]

    @property
    def batch(self) -> float:
        """Samples of an execution, on average."""
        return self.inferences / self.executions if self.executions else 0.0

    @property
    def compute_us(self) -> float:
        """Input, the model itself, output."""
        return self.compute_input_us + self.compute_infer_us + self.compute_output_us

    @property
    def queue_share(self) -> float:
        """Of the time within the server."""
        return self.queue_us / self.total_us if self.total_us else 0.0


@dataclass(frozen=True)
class Share:
    """What one of several models did in the same time."""

    throughput: float
    latency_ms: Mapping[str, float]
    supported: bool
    served: Served | None


class Figures(Protocol):
    """What objectives and bounds are of: a row's, or those of one of its measurements."""

    @property
    def throughput(self) -> float:
        """Inferences a second."""

    @property
    def latency_ms(self) -> Mapping[str, float]:
        """By LATENCIES."""

    @property
    def memory_mb(self) -> float | None:
        """Of the server's processes, where known."""

    @property
    def gpu_memory_mb(self) -> float | None:
        """Of its GPUs, where known."""

    @property
    def models(self) -> Mapping[str, Share]:
        """Of several that were served together, what each of them did."""


@dataclass(frozen=True)
class Round:
    """One measurement of a row that has several.

    turn: in which it was measured again, from 1; what has the same turn was measured one behind the other.  0: it is
    the search's own, which chose the row, and is no part of its figures.
    """

    turn: int
    throughput: float
    latency_ms: Mapping[str, float]
    memory_mb: float | None
    models: Mapping[str, Share] = field(default_factory=dict)
    gpu_memory_mb: float | None = None
    served: Served | None = None


@dataclass(frozen=True)
class Trial:
    """One row.

    failure: why it has no figures, or cannot win, one sentence, or "".  throughput: inferences a second; latency_ms: by
    LATENCIES; supported: there were enough requests for p99 in each measurement; memory_mb: of the server's processes,
    gpu_memory_mb: of their GPUs, where known; limited: why the client was the limit, or ""; rounds: the search's
    measurement and those of turns, where there were some.  All figures are of the turns then: throughput and latencies
    are medians of those where they are known, of a percentile, too; served is of all their requests, memory the most;
    models: of several that were served together, what each of them did.
    """

    variant: Variant
    mode: str
    level: float
    failure: str = ""
    throughput: float = 0.0
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    supported: bool = True
    requests: int = 0
    errors: int = 0
    stable: bool = True
    reason: str = ""
    limited: str = ""
    served: Served | None = None
    memory_mb: float | None = None
    rounds: tuple[Round, ...] = ()
    models: Mapping[str, Share] = field(default_factory=dict)
    gpu_memory_mb: float | None = None

    @property
    def turns(self) -> tuple[Round, ...]:
        """Those in which it was measured again."""
        return tuple(each for each in self.rounds if each.turn)

    @property
    def first(self) -> Trial:
        """As the search has measured it."""
        if not self.rounds:
            return self
        own = self.rounds[0]
        return replace(
            self,
            failure="",
            throughput=own.throughput,
            latency_ms=own.latency_ms,
            served=own.served,
            memory_mb=own.memory_mb,
            rounds=(),
            models=own.models,
            gpu_memory_mb=own.gpu_memory_mb,
        )

    @property
    def starved(self) -> bool:
        """One of several models answered nothing, and no request failed: more load may give it some."""
        return not self.errors and self.throughput > 0 and any(not each.latency_ms for each in self.models.values())

    @property
    def key(self) -> str:
        """Names it in a checkpoint."""
        return f"{self.variant.text} | {self.mode} {float(self.level)!r}"

    @property
    def load(self) -> str:
        """Its level, for people."""
        return f"{self.mode.replace('_', ' ')} {self.level:.10g}"


def trial_of(variant: Variant, level: Measurement, batch_size: int, memory: int | None) -> Trial:
    """From what bench has measured."""
    whole = _share(level, batch_size)
    failure, silent = "", [name for name, each in level.models.items() if not each.completed]
    if level.errors.count:
        (status, text), _ = max(level.errors.by_text.items(), key=lambda each: each[1])
        failure = f"{level.errors.count} of {level.requests} requests failed, most with {status}: {text}"
    elif not level.completed:
        failure = f"no request was answered within the measured windows: {level.reason}"
    elif level.unsent:
        failure = f"{level.unsent} requests were due and never left: this variant takes less than this rate"
    elif silent:
        failure = (
            f"no request of model '{silent[0]}' was answered within the measured windows: longer ones (-p), more load, "
            "or more of the requests for it (-m A=3,B=1) give it some"
        )
    return Trial(
        variant,
        level.level.mode,
        level.level.value,
        failure,
        whole.throughput,
        whole.latency_ms,
        whole.supported,
        level.completed,
        level.errors.count,
        level.stable,
        level.reason,
        level.client.limited,
        whole.served,
        None if memory is None else memory / 1e6,
        models={name: _share(each, batch_size) for name, each in level.models.items()},
        gpu_memory_mb=_gpu_memory(level),
    )


def _gpu_memory(level: Measurement) -> float | None:
    """Of all GPUs, 0 where the server uses none; None where one of them is not known, or there is none."""
    usage = None if level.server is None else level.server.usage
    known = [] if usage is None else [each.memory_bytes for each in usage.gpus.values()]
    told = [each for each in known if each is not None]
    return sum(told) / 1e6 if told and len(told) == len(known) else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _share(level: Measurement, batch_size: int) -> Share:
    found = level.response
    latency = {"avg": found.mean / 1e6, **{f"p{each}": found.quantile(each / 100) / 1e6 for each in PERCENTILES}}
    return Share(throughput(level, batch_size), latency if found.count else {}, supported(found, 99), _served(level))


def _served(level: Measurement) -> Served | None:
    split = level.server
    if split is None or not split.success_count:
        return None
    parts = server_parts(split)
    return Served(
        parts.queue,
        parts.compute_input,
        parts.compute_infer,
        parts.compute_output,
        parts.total,
        split.inference_count,
        split.execution_count,
        {str(size): count for size, count in sorted(split.batch_sizes.items())},
    )


def joined(trial: Trial, new: Trial, turn: int) -> Trial:
    """A row that was measured once more, in a turn: see Trial's rounds; a failure is one of the row."""
    rounds = trial.rounds or (_round(trial, 0),)
    if new.failure:
        return replace(trial, failure=f"when it was measured again, {new.failure}", rounds=rounds)
    rounds = (*rounds, _round(new, turn))
    turns = rounds[1:]
    names = dict.fromkeys(name for each in turns for name in each.models)
    before = trial if trial.turns else replace(new, requests=0)
    return replace(
        trial,
        throughput=median(each.throughput for each in turns),
        latency_ms=_medians([each.latency_ms for each in turns]),
        supported=before.supported and new.supported,
        requests=before.requests + new.requests,
        stable=before.stable and new.stable,
        reason=before.reason if not before.stable else new.reason,
        limited=before.limited or new.limited,
        served=_pooled([each.served for each in turns]),
        memory_mb=_most(each.memory_mb for each in turns),
        gpu_memory_mb=_most(each.gpu_memory_mb for each in turns),
        rounds=rounds,
        models={name: _joined_shares([each.models[name] for each in turns if name in each.models]) for name in names},
    )


def _joined_shares(shares: Sequence[Share]) -> Share:
    return Share(
        median(each.throughput for each in shares),
        _medians([each.latency_ms for each in shares]),
        all(each.supported for each in shares),
        _pooled([each.served for each in shares]),
    )


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name, of those that have it."""
    names = dict.fromkeys(name for each in measured for name in each)
    return {name: median(each[name] for each in measured if name in each) for name in names}


def _pooled(measured: Sequence[Served | None]) -> Served | None:
    """Of all requests together."""
    known = [each for each in measured if each is not None and each.inferences]
    if len(known) < 2:
        return known[0] if known else next(iter(measured), None)
    inferences = sum(each.inferences for each in known)

    def mean(part: Callable[[Served], float]) -> float:
        return sum(each.inferences * part(each) for each in known) / inferences

    sizes = Counter[str]()
    for each in known:
        sizes.update(each.batch_sizes)
    return Served(
        mean(lambda each: each.queue_us),
        mean(lambda each: each.compute_input_us),
        mean(lambda each: each.compute_infer_us),
        mean(lambda each: each.compute_output_us),
        mean(lambda each: each.total_us),
        inferences,
        sum(each.executions for each in known),
        dict(sorted(sizes.items(), key=lambda each: int(each[0]))),
    )


def _round(trial: Trial, turn: int) -> Round:
    return Round(
        turn, trial.throughput, trial.latency_ms, trial.memory_mb, trial.models, trial.gpu_memory_mb, trial.served
    )


def to_json(trial: Trial) -> dict[str, Any]:
    """Plain values."""
    return {**asdict(trial), "variant": dict(trial.variant.settings)}


def from_json(value: Mapping[str, Any]) -> Trial:
    """The same again.  TypeError, KeyError, ValueError or AttributeError where it is none."""
    fields = dict(value)
    variant = Variant(tuple(fields.pop("variant").items()))
    served, rounds = _served_of(fields.pop("served")), fields.pop("rounds")
    models = _shares_of(fields.pop("models"))
    all_rounds = tuple(_round_of(each) for each in rounds)
    return Trial(variant, served=served, rounds=all_rounds, models=models, **fields)


def _round_of(value: Mapping[str, Any]) -> Round:
    return Round(**{**value, "models": _shares_of(value["models"]), "served": _served_of(value.get("served"))})


def _shares_of(value: Mapping[str, Any]) -> dict[str, Share]:
    return {name: Share(**{**each, "served": _served_of(each["served"])}) for name, each in value.items()}


def _served_of(value: Mapping[str, Any] | None) -> Served | None:
    return None if value is None else Served(**value)
