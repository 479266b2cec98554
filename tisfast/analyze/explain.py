"""Why the winner won, in words, from what was measured.  Layer 5 (analyze)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tisfast import limits
from tisfast.analyze.aims import TURNS_MIN, Aims, Ranked, difference
from tisfast.analyze.space import WHOLE_MAX
from tisfast.analyze.subject import Subject
from tisfast.analyze.trials import Served, Share, Trial
from tisfast.analyze.variants import DEFAULT, INSTANCES, MAX_BATCH, PREFERRED, in_force, named

SELDOM: Final = 0.01
"""Batches of a size that are fewer are not named."""
NAMED: Final = 3
"""Variants in a sentence about several."""
NOTED: Final = 1.1
"""Figures that differ by less are called alike."""


def explained(
    ranked: Sequence[Ranked], trials: Sequence[Trial], aims: Aims, subject: Subject, needed: int = 1
) -> list[str]:
    """Sentences; each one stands on figures that it names.  needed: as in ranking."""
    if not ranked:
        return ["No variant could be measured, so nothing can be said of them."]
    winner = ranked[0].trial
    default = next((each.trial for each in ranked if each.trial.variant == DEFAULT), None)
    said = [_won(ranked[0], default, aims)]
    if ranked[0].broken:
        said.append(f"It does not keep every bound: {'; '.join(ranked[0].broken)}. No variant does.")
    if default is not None and default is not winner:
        said += _against(winner, default)
        said += _of_models(winner, default)
    elif default is winner:
        said += _nothing_better(ranked, aims)
    if default is not None:
        said += _sure(winner, default, aims)
    said += _unsure(ranked, aims, needed)
    said += _of_formats(ranked, trials, subject)
    said += _of_instances(ranked, subject)
    said += _bounded(ranked, subject)
    said += _client(winner, default)
    said += _failed(ranked, trials)
    return said


def out(ranked: Sequence[Ranked], trials: Sequence[Trial]) -> dict[str, Trial]:
    """Variants without any figures, with their failures."""
    there = {each.trial.variant.text for each in ranked}
    return {each.variant.text: each for each in trials if each.failure and each.variant.text not in there}


def _failed(ranked: Sequence[Ranked], trials: Sequence[Trial]) -> Iterator[str]:
    gone = out(ranked, trials)
    yield from (f"{name} is out: {trial.failure}." for name, trial in list(gone.items())[: limits.ANALYZE_NAMED_MAX])
    if len(gone) > limits.ANALYZE_NAMED_MAX:
        yield f"So are {len(gone) - limits.ANALYZE_NAMED_MAX} more; the table has their reasons."
    partly = [each for each in trials if each.failure and each.variant.text not in gone]
    for trial in partly[: limits.ANALYZE_NAMED_MAX]:
        yield f"{trial.variant.text} failed at {trial.load}, and its other levels count: {trial.failure}."
    if len(partly) > limits.ANALYZE_NAMED_MAX:
        yield f"{len(partly) - limits.ANALYZE_NAMED_MAX} more levels failed; the table has their reasons."


def apart(ranked: Sequence[Ranked], aims: Aims) -> bool:
    """Whether the winner differs from the default by more than chance, or is the default, or has none beside it."""
    winner = ranked[0].trial
    default = next((each.trial for each in ranked if each.trial.variant == DEFAULT), None)
    return default is None or default is winner or difference(winner, default, aims).apart


def _won(first: Ranked, default: Trial | None, aims: Aims) -> str:
    best = first.trial
    text = f"Best: {best.variant.text}, at {best.load}: {best.throughput:.4g} inferences/s, p99 {_ms(best, 'p99')}"
    if default is None:
        return f"{text}. The default has no figures to compare with."
    if default is best:
        return f"{text}."
    return (
        f"{text}; the default's best, at {default.load}, is {default.throughput:.4g} inferences/s, p99 "
        f"{_ms(default, 'p99')}: {best.throughput / default.throughput:.3g} times the throughput"
        f"{'' if difference(best, default, aims).apart else ', but they are not told apart: it may be chance'}."
    )


def _against(winner: Trial, default: Trial) -> Iterator[str]:
    new, old = winner.served, default.served
    if new is None or old is None:
        yield "The server gave no statistics, so it is not known where the time went."
        return
    yield (
        f"In the default a request spent {_percent(old.queue_share)} of its {_us(old.total_us)} in the server waiting "
        f"in the queue and {_us(old.compute_us)} computing; now it is {_percent(new.queue_share)} of "
        f"{_us(new.total_us)}, and {_us(new.compute_us)}."
    )
    if new.batch > NOTED * old.batch:
        each_old, each_new = _sample_us(old), _sample_us(new)
        cost = "cheaper" if each_old > NOTED * each_new else "no cheaper"
        yield (
            f"Batches grew from {old.batch:.3g} to {new.batch:.3g} samples ({_sizes(new)}): a sample costs an instance "
            f"{_us(each_new)} instead of {_us(each_old)}, so executing samples together is {cost}."
        )
    elif old.batch > NOTED * new.batch:
        yield f"Batches shrank from {old.batch:.3g} to {new.batch:.3g} samples."
    instances = int(winner.variant.value(INSTANCES) or 1)
    if instances > 1 and new.compute_infer_us > NOTED * old.compute_infer_us and new.batch <= NOTED * old.batch:
        yield (
            f"With {instances} instances an execution takes {_us(new.compute_infer_us)} instead of "
            f"{_us(old.compute_infer_us)}: the instances hinder each other, or more load is under way."
        )


def _of_models(winner: Trial, default: Trial) -> Iterator[str]:
    """Each of several that are served together."""
    for name, new in list(winner.models.items())[: limits.ANALYZE_NAMED_MAX]:
        old = default.models.get(name)
        if old is None:
            continue
        text = (
            f"Of {name}: {old.throughput:.4g} inferences/s became {new.throughput:.4g}, and p99 {_ms(old, 'p99')} "
            f"became {_ms(new, 'p99')}"
        )
        if old.served is not None and new.served is not None:
            text += (
                f"; the share of the queue went from {_percent(old.served.queue_share)} to "
                f"{_percent(new.served.queue_share)}, computing from {_us(old.served.compute_us)} to "
                f"{_us(new.served.compute_us)}, batches from {old.served.batch:.3g} to {new.served.batch:.3g} samples"
            )
        yield f"{text}."


def _sure(winner: Trial, default: Trial, aims: Aims) -> Iterator[str]:
    """Whether the gain is more than chance, by the objectives."""
    if winner is default:
        return
    found = difference(winner, default, aims)
    if found.turns < TURNS_MIN:
        yield (
            f"They are not told apart: both were measured again in {found.turns} turns, and it takes {TURNS_MIN} to "
            f"tell a gain from chance (--confirm {TURNS_MIN})."
        )
        return
    text = (
        f"Measured again by turns, {found.turns} times each: the gain is {found.gain:+.3g} %, its 95 % interval from "
        f"{found.low:+.3g} to {found.high:+.3g} %"
    )
    yield f"{text}." if found.apart else f"{text}: they are not told apart, it may be chance (a greater --confirm)."


def _unsure(ranked: Sequence[Ranked], aims: Aims, needed: int) -> Iterator[str]:
    """What stands on fewer measurements than were wanted."""
    first = ranked[0]
    if first.trial.measured < needed:
        yield (
            f"The winner was measured {first.trial.measured} times, not the {needed} that were wanted, so its place "
            "may be chance; the same command goes on."
        )
    better = [
        each.trial
        for each in ranked[1:]
        if each.trial.measured < needed <= first.trial.measured
        and aims.gain(each.trial, first.trial) > aims.alike
        and aims.excess(each.trial) <= aims.excess(first.trial)
    ]
    for each in better[: limits.ANALYZE_NAMED_MAX]:
        yield (
            f"{each.variant.text} had better figures ({each.throughput:.4g} inferences/s) in {each.measured} "
            f"measurements, but not the {needed} that the winner has, so it stands behind."
        )


def _nothing_better(ranked: Sequence[Ranked], aims: Aims) -> Iterator[str]:
    others = [each for each in ranked[1:] if not each.broken]
    if not others:
        yield "It is the default: no other variant keeps the bounds and answers."
        return
    second = others[0]
    yield (
        f"It is the default: no variant is better by more than {aims.margin:g} % (--margin); the next one, "
        f"{second.trial.variant.text}, has {second.trial.throughput:.4g} inferences/s at {second.trial.load}."
    )


def _of_formats(ranked: Sequence[Ranked], trials: Sequence[Trial], subject: Subject) -> Iterator[str]:
    """What each format gives at its best."""
    best: dict[str, Trial] = {}
    for each in ranked:
        best.setdefault(subject.served(each.trial.variant)[0], each.trial)
    if not subject.formats:
        return
    parts = [f"{name}: {each.throughput:.4g}/s{_execution(each)}" for name, each in best.items()]
    tried = {subject.served(each.variant)[0] for each in trials}
    parts += [
        f"{name}: {'it failed' if name in tried else 'not measured'}" for name in subject.configs if name not in best
    ]
    more = ", ..." if len(parts) > limits.ANALYZE_NAMED_MAX else ""
    yield f"By formats, the best of each: {', '.join(parts[: limits.ANALYZE_NAMED_MAX])}{more}."


def _of_instances(ranked: Sequence[Ranked], subject: Subject) -> Iterator[str]:
    """What more instances of one model did, each number at its best."""
    if len(subject.configs) > 1:
        return
    best: dict[int, Trial] = {}
    for each in ranked:  # in order: the first one is the best
        (config,) = subject.configured(each.trial.variant).values()
        count = in_force(INSTANCES, config)
        if count is not None:
            best.setdefault(int(count), each.trial)
    if len(best) < 2:
        return
    counts = sorted(best)[: limits.ANALYZE_NAMED_MAX]
    parts = [f"{count}: {best[count].throughput:.4g}/s{_execution(best[count])}" for count in counts]
    text = f"By instances, the best of each: {', '.join(parts)}."
    first, last = best[counts[0]], best[counts[-1]]
    if first.served is not None and last.served is not None and last.throughput <= NOTED * first.throughput:
        grown = last.served.compute_infer_us / max(first.served.compute_infer_us, 1.0)
        if grown > NOTED:
            text += f" Executions take {grown:.3g} times as long with the most: the instances share what limits them."
        else:
            text += " More of them do not help: something else limits, or there was not enough load for them."
    yield text


def _bounded(ranked: Sequence[Ranked], subject: Subject) -> Iterator[str]:
    """Sizes that a file prefers are the most that a queue gathers, also where max_batch_size is larger."""
    for name, config in subject.configs.items():
        sizes = _preferred(config)
        larger = [
            each.trial.variant.text
            for each in ranked
            if any(each.trial.variant.value(key) for key in (MAX_BATCH, named(name, MAX_BATCH)))
            and (made := subject.configured(each.trial.variant).get(name)) is not None
            and _preferred(made) == sizes
            and max(sizes, default=WHOLE_MAX) < int(in_force(MAX_BATCH, made) or 0)
        ]
        if larger:
            more = ", ..." if len(larger) > NAMED else ""
            yield (
                f"The file of {name} names preferred_batch_size {sizes}, which bounds the batches of "
                f"{', '.join(larger[:NAMED])}{more} to {max(sizes)} samples, though max_batch_size allows more; "
                "--preferred-batch-sizes searches them."
            )


def _preferred(config: Mapping[str, Any]) -> list[int]:
    return list(json.loads(str(in_force(PREFERRED, config))))


def _execution(trial: Trial) -> str:
    return f" with {_us(trial.served.compute_infer_us)} for an execution" if trial.served else ""


def _client(winner: Trial, default: Trial | None) -> Iterator[str]:
    for trial, name in ((winner, "winner"), (default, "default")):
        if trial is None or (name == "default" and trial is winner):
            continue
        if trial.limited:
            yield f"Of the {name}: {trial.limited}"
        if not trial.stable:
            yield f"The {name}'s figures are not stable: {trial.reason}"
        if not trial.supported:
            times = f" in {trial.measured} measurements" if trial.rounds else ""
            yield f"The {name}'s p99 stands on few requests ({trial.requests}{times}); a longer -p helps."


def _sample_us(served: Served) -> float:
    """Time of an instance that a sample takes: an execution's, by its samples."""
    return served.compute_infer_us / max(served.batch, 1.0)


def _sizes(served: Served) -> str:
    total = sum(served.batch_sizes.values()) or 1
    most = sorted(served.batch_sizes.items(), key=lambda each: -each[1])[:3]
    return ", ".join(f"{_percent(count / total)} of {size}" for size, count in most if count >= SELDOM * total)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _us(value: float) -> str:
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def _ms(trial: Trial | Share, name: str) -> str:
    return f"{trial.latency_ms[name]:.3g} ms" if name in trial.latency_ms else "unknown"
