"""The source's own answers, whatever its framework is: what each of them has in common.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tisfast.convert.compare import HALF, Difference, allowed, rows_apart
from tisfast.convert.sample_bounds import check_answers
from tisfast.convert.samples import Case, cases_of, drawn, fitted, save_cases, stored
from tisfast.convert.scales import scales_of
from tisfast.convert.signature import Signature
from tisfast.errors import BadRequest

Array = NDArray[Any]
FEEDS: Final = "feeds.npz"
ANSWERS: Final = "answers.npz"


def given_samples(request: Mapping[str, Any]) -> list[dict[str, Array]]:
    """Those of the request; none where they are to be drawn."""
    if not request["samples"]:
        return []
    names: list[str] = request["names"]
    with np.load(request["samples"], allow_pickle=False) as file:
        return [
            {name: stored(file, f"{at}:{place}") for place, name in enumerate(names)}
            for at in range(request["sample_count"])
        ]


def answer(
    request: Mapping[str, Any],
    folder: Path,
    signature: Signature,
    samples: list[dict[str, Array]],
    run: Callable[[dict[str, Array]], dict[str, Array]],
) -> dict[str, Any]:
    """Ask the source for all samples; writes requests and answers, gives what the parent must know.

    samples: none where they are to be drawn; run: gives the outputs by name, of inputs by name.  Raises BadRequest for
    samples that do not fit.
    """
    fitting = fitted(samples, signature) if samples else [drawn(signature)]
    cases = cases_of(fitting, signature, request["max_batch_size"])
    names = [each.name for each in signature.outputs]
    answers: list[Case] = []
    nbytes = 0
    for case in cases:
        found = run(case.feeds)
        nbytes += sum(np.asarray(found[name]).nbytes for name in names)
        check_answers(nbytes)
        answers.append(Case(case.name, {name: np.asarray(found[name]) for name in names}, case.alone))
    if not request["judged"]:
        _check_repeats(request, signature, cases[0], answers, run)
    mixes = _mixing(request, signature, cases, answers) if signature.batches else ""
    signature = replace(signature, mixes=bool(mixes))
    if signature.joined:
        answers = _of_rows(answers)
    notes = [f"{mixes}. So it is written without batching: the rows of several requests never meet"] if mixes else []
    notes += _of_outputs(request, {name: [each.feeds[name] for each in answers] for name in names})
    save_cases(folder / FEEDS, cases)
    save_cases(folder / ANSWERS, answers)
    rows = sum(len(next(iter(each.values()))) for each in fitting) if signature.batches else len(fitting)
    return {
        "signature": signature.document(),
        "cases": [each.name for each in cases],
        "rows": rows,
        "drawn": bool(signature.inputs) and not request["samples"],
        "notes": notes,
    }


def _of_outputs(request: Mapping[str, Any], answers: Mapping[str, Sequence[Array]]) -> list[str]:
    """What is to be known of them.  Raises BadRequest where none has a number that could be compared."""
    notes, empty = [], []
    for name, arrays in answers.items():
        numbers = [each for each in arrays if each.dtype.kind == "f" and each.size]
        if not numbers:
            continue
        if not any(np.isfinite(each).any() for each in numbers):
            empty.append(name)
            notes.append(f"output '{name}' is NaN or infinite for all samples, so that nothing of it was compared")
        elif not any((each != 0).any() for each in numbers):
            notes.append(f"output '{name}' is 0 for all samples, which tell little of it: others may show more")
        if any(each.dtype == HALF for each in numbers):
            notes.append(f"output '{name}' is FP16 in the source itself, so FP16's tolerances hold for it throughout")
    if empty and len(empty) == len(answers):
        raise BadRequest(
            f"{request['text']} itself answers NaN or infinity to all samples, so that nothing can be compared: look "
            "at the samples for NaN, infinity and numbers that are too large, and give others"
        )
    return notes


def _check_repeats(
    request: Mapping[str, Any],
    signature: Signature,
    case: Case,
    answers: Sequence[Case],
    run: Callable[[dict[str, Array]], dict[str, Array]],
) -> None:
    """Raises BadRequest where the source answers the first sample otherwise when it is asked again."""
    seen, again = Difference(), run(case.feeds)
    for each in signature.outputs:
        first = answers[0].feeds[each.name]
        scales = scales_of([every.feeds[each.name] for every in answers], each.dims)
        own = allowed("fp32", first, scales, request["atol"], request["rtol"])
        seen.add(each.name, f"{case.name}, asked again", first, np.asarray(again[each.name]), own)
    if seen.wrong:
        raise BadRequest(
            f"{request['text']} itself does not answer the same to the same sample: {seen.wrong}. It draws random "
            "numbers or keeps something between requests, so no format can be held against it: fix that, or judge "
            "with the function `verify` of convert()"
        )


def _mixing(request: Mapping[str, Any], signature: Signature, cases: Sequence[Case], answers: Sequence[Case]) -> str:
    """Why rows of several requests may not be put together, one sentence; "" where they may."""
    batches = {at: each.alone for at, each in enumerate(cases) if each.alone}
    if not batches:
        return ""
    if not any(_rows_differ(array) for at in batches for array in cases[at].feeds.values()):
        return (
            "whether the rows of a batch influence each other cannot be seen, as no two samples of one shape differ: "
            "give more"
        )
    dims = {each.name: each.dims for each in signature.outputs}
    apart = rows_apart([each.feeds for each in answers], batches, dims, request["atol"], request["rtol"])
    return apart and f"the rows of a batch influence each other in {request['text']} itself: {apart}"


def _rows_differ(array: Array) -> bool:
    """Rows with NaN in the same places are alike."""
    unlike = array != array[:1]
    if array.dtype.kind == "f":
        unlike &= ~(np.isnan(array) & np.isnan(array[:1]))
    return bool(unlike.any())


def _of_rows(answers: Sequence[Case]) -> list[Case]:
    """With what each row alone is answered in place of what a batch is: a client that asks for one row wants that."""
    return [
        each
        if not each.alone
        else each._replace(
            feeds={name: np.concatenate([answers[at].feeds[name] for at in each.alone]) for name in each.feeds}
        )
        for each in answers
    ]
