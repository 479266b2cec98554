"""Why the winner won, in words, from what was measured.  Layer 5 (analyze)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tisfast import limits
from tisfast.analyze.aims import THROUGHPUT, Aims, unit, value_of
from tisfast.analyze.ranking import LARGE, MEASURED_ONCE, NOT_APART, SURE, TURNS_MIN, Ranked, gain_text
from tisfast.analyze.space import WHOLE_MAX
from tisfast.analyze.subject import Subject
from tisfast.analyze.table import counted
from tisfast.analyze.trials import Served, Share, Trial
from tisfast.analyze.variants import DEFAULT, INSTANCES, MAX_BATCH, PREFERRED, in_force, named
from tisfast.bench.figures import needed_for

SELDOM: Final = 0.01
"""Batches of a size that are fewer are not named."""
NAMED: Final = 3
"""Variants in a sentence about several."""
NOTED: Final = 1.1
"""Figures that differ by less are called alike."""


def explained(
    ranked: Sequence[Ranked], trials: Sequence[Trial], aims: Aims, subject: Subject, wanted: int = 0
) -> list[str]:
    """Sentences; each one stands on figures that it names.  wanted: turns, of --confirm."""
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
    said += _sure(ranked[0], aims, wanted)
    said += _unsure(ranked, aims, wanted)
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


def _by(aims: Aims) -> str:
    """What a gain is of."""
    return " and ".join(name.replace("_", " ") for name, _ in aims.objectives)


def _figures(trial: Trial, aims: Aims) -> str:
    """Throughput, p99, and what else was the objective."""
    parts = [f"{trial.throughput:.4g} inferences/s", f"p99 {_ms(trial, 'p99')}"]
    for name, _ in aims.objectives:
        value = value_of(trial, name)
        if name not in (THROUGHPUT, "latency_p99") and value is not None:
            parts.append(f"{name.replace('_', ' ')} {value:.4g}{unit(name)}")
    return ", ".join(parts)


def _gain(ranked: Ranked, aims: Aims) -> str:
    """In words."""
    found = ranked.difference
    if found is None:
        return "no figures to compare with"
    text = gain_text(found.gain)
    if math.exp(found.gain) >= LARGE:
        return f"{text.removeprefix('x')} times as good by {_by(aims)}"
    return f"a gain of {text} by {_by(aims)}"


def _won(first: Ranked, default: Trial | None, aims: Aims) -> str:
    best = first.trial
    text = f"Best: {best.variant.text}, at {best.load}: {_figures(best, aims)}"
    if default is None:
        return f"{text}. The default has no figures to compare with."
    if default is best:
        return f"{text}."
    chance = {MEASURED_ONCE: ", but it was measured once", NOT_APART: ", but they are not told apart"}.get(first.note)
    chance = f"{chance}: it may be chance" if chance else ""
    text += f"; the default's best, at {default.load}, has {_figures(default, aims)}"
    return f"{text}: {_gain(first, aims)}{chance}."


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


def _interval(ranked: Ranked, aims: Aims) -> str:
    """What turns say of the gain, where there were enough."""
    found = ranked.difference
    if found is None or found.turns < TURNS_MIN:
        return ""
    return (
        f"measured again by turns, {found.turns} times each: the gain by {_by(aims)} is {gain_text(found.gain)}, its "
        f"{100 * SURE:g} % interval from {gain_text(found.low)} to {gain_text(found.high)}"
    )


def _sure(first: Ranked, aims: Aims, wanted: int) -> Iterator[str]:
    """Whether the winner's gain is more than chance, by the objectives."""
    found = first.difference
    if found is None or first.trial.variant == DEFAULT:
        return
    if text := _interval(first, aims):
        told = "" if found.apart else ": they are not told apart, it may be chance (a greater --confirm)"
        yield f"{text[0].upper()}{text[1:]}{told}."
    else:
        more = "the same command goes on" if wanted >= TURNS_MIN else f"--confirm {TURNS_MIN}"
        yield (
            f"They are not told apart: both were measured again in {counted(found.turns, 'turn')}, and it takes "
            f"{TURNS_MIN} to tell a gain from chance ({more})."
        )


def _unsure(ranked: Sequence[Ranked], aims: Aims, wanted: int) -> Iterator[str]:
    """What was not measured again, though it was wanted."""
    first = ranked[0].trial
    if not wanted:
        return
    if not first.turns:
        yield "The winner was measured once, so its place may be chance; the same command goes on."
        return
    better = [
        each.trial
        for each in ranked[1:]
        if not each.trial.turns
        and aims.gain(each.trial, first) > aims.alike
        and aims.excess(each.trial) <= aims.excess(first)
    ]
    for each in better[: limits.ANALYZE_NAMED_MAX]:
        yield (
            f"{each.variant.text} had better figures ({_figures(each, aims)}), but was measured once, and others that "
            "had such figures lost them by turns; a greater --best measures more of them again."
        )


def _nothing_better(ranked: Sequence[Ranked], aims: Aims) -> Iterator[str]:
    others = [each for each in ranked[1:] if not each.broken]
    if not others:
        yield "It is the default: no other variant keeps the bounds and answers."
        return
    second = next((each for each in others if each.trial.turns), others[0])
    name, gain = second.trial.variant.text, second.difference
    if gain is None or gain.gain <= aims.alike or not second.trial.turns:
        yield (
            f"It is the default: no variant is better by more than {aims.margin:g} % (--margin); the next one, {name}, "
            f"has {_figures(second.trial, aims)} at {second.trial.load}."
        )
        return
    told = _interval(second, aims) or f"they were measured again together in {counted(gain.turns, 'turn')} alone"
    yield (
        f"It is the default: {name} has {_figures(second.trial, aims)} at {second.trial.load}, {_gain(second, aims)}, "
        f"but they are not told apart ({told}), so it may be chance; a greater --confirm may tell."
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
            within = f", in one of its {counted(len(trial.turns), 'turn')}" if len(trial.turns) > 1 else ""
            yield f"The {name}'s p99 stands on fewer than {needed_for(0.99)} requests{within}; a longer -p helps."


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
