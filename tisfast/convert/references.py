"""The source's own answers, whatever its framework is: what each of them has in common.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tisfast.convert.sample_bounds import check_answers
from tisfast.convert.samples import Case, cases_of, drawn, fitted, save_cases
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
            {name: file[f"{at}:{place}"] for place, name in enumerate(names)} for at in range(request["sample_count"])
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
        answers.append(Case(case.name, {name: np.asarray(found[name]) for name in names}))
    save_cases(folder / FEEDS, cases)
    save_cases(folder / ANSWERS, answers)
    rows = sum(len(next(iter(each.values()))) for each in fitting) if signature.batches else len(fitting)
    return {
        "signature": signature.document(),
        "cases": [each.name for each in cases],
        "rows": rows,
        "drawn": not request["samples"],
    }
