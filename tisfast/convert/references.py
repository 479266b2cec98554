"""The source's own answers, whatever its framework is: what each of them has in common.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tisfast.convert.compare import rows_apart, scale_of
from tisfast.convert.sample_bounds import check_answers
from tisfast.convert.samples import Case, cases_of, drawn, fitted, save_cases, stored
from tisfast.convert.signature import Signature

Array = NDArray[Any]
SAMPLES: Final = "samples.npz"
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
    mixes = _mixing(request, cases, answers) if signature.batches else ""
    signature = replace(signature, mixes=bool(mixes))
    if signature.joined:
        answers = _of_rows(answers)
    notes = [f"{mixes}. So it is written without batching: the rows of several requests never meet"] if mixes else []
    for name in names:
        numbers = [each.feeds[name] for each in answers if each.feeds[name].dtype.kind == "f"]
        if numbers and not scale_of(numbers):
            notes.append(f"output '{name}' is 0 for all samples, which tell little of it: others may show more")
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


def _mixing(request: Mapping[str, Any], cases: Sequence[Case], answers: Sequence[Case]) -> str:
    """Why rows of several requests may not be put together, one sentence; "" where they may."""
    batches = {at: each.alone for at, each in enumerate(cases) if each.alone}
    if not batches:
        return ""
    if not any(len(array) and (array != array[:1]).any() for at in batches for array in cases[at].feeds.values()):
        return (
            "whether the rows of a batch influence each other cannot be seen, as no two samples of one shape differ: "
            "give more"
        )
    names = list(answers[0].feeds)
    apart = rows_apart([each.feeds for each in answers], batches, names, request["atol"], request["rtol"])
    return apart and f"the rows of a batch influence each other in {request['text']} itself: {apart}"


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
