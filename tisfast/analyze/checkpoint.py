"""What was measured, in a file that is whole after each variant, so that a run can go on.  Layer 5 (analyze)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tisfast.analyze.field_types import check_fields
from tisfast.analyze.trials import Trial, from_json, to_json
from tisfast.bench.documents import FILE_BYTES_MAX
from tisfast.bench.files import write_text
from tisfast.bench.json_file import read_json
from tisfast.errors import BadRequest

SCHEMA: Final = "tisfast analyze 3"
NAME: Final = "checkpoint.json"
REMEDY: Final = "make room there, or name another output directory with -o; the same command goes on"
"""Where a file of the output directory cannot be written."""
WHAT_IS_SEARCHED: Final = ("search space", "load", "search")
"""Parts of the setup that may change with --checkpoint extend: rows mean the same."""
MODES: Final = ("resume", "extend", "new")


class Checkpoint:
    """Rows by their keys, and the file that keeps them.  setup: what they were measured with."""

    def __init__(self, folder: Path, setup: Mapping[str, Any]) -> None:
        self._file, self._setup = folder / NAME, dict(setup)
        self.trials: dict[str, Trial] = {}

    @classmethod
    def opened(cls, folder: Path, setup: Mapping[str, Any], mode: str) -> Checkpoint:
        """With the rows of a run before.  Raises BadRequest when that was another one, and `mode` does not allow it."""
        made = cls(folder, setup)
        if mode == "new" or not made._file.exists():
            return made
        hint = "take another --output-directory, or --checkpoint new, which forgets its figures"
        document = read_json(
            str(made._file), str(made._file), FILE_BYTES_MAX, (hint, hint, f"it was changed or cut; {hint}")
        )
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise BadRequest(f"{made._file} is no checkpoint of this version of tisfast analyze; {hint}")
        before = document.get("setup")
        if not isinstance(before, dict):
            raise BadRequest(f"{made._file} lacks its setup: it was changed or cut; {hint}")
        allowed = WHAT_IS_SEARCHED if mode == "extend" else ()
        plain = json.loads(json.dumps(made._setup))
        for name in (*plain, *(each for each in before if each not in plain)):
            old, new = before.get(name), plain.get(name)
            if old == new or name in allowed:
                continue
            if name in WHAT_IS_SEARCHED:
                hint += "; --checkpoint extend keeps what fits"
            raise BadRequest(
                f"{made._file} is of another run, as {name} differs: it has {_short(old)}, and now it is "
                f"{_short(new)}; {hint}"
            )
        try:
            for each in document["trials"]:
                trial = from_json(each)
                check_fields(trial)
                made.trials[trial.key] = trial
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"{made._file} has a row that cannot be read ({error!r:.200}); {hint}") from None
        return made

    def add(self, trial: Trial) -> None:
        """Keep a row; `save` writes it."""
        self.trials[trial.key] = trial

    def forget(self, which: Callable[[Trial], bool]) -> None:
        """Rows that are measured again."""
        self.trials = {key: each for key, each in self.trials.items() if not which(each)}

    def save(self) -> None:
        """Write all.  Raises Unavailable, with the reason."""
        rows = [to_json(each) for each in self.trials.values()]
        text = json.dumps({"schema": SCHEMA, "setup": self._setup, "trials": rows}, indent=1, allow_nan=False)
        write_text(self._file, text + "\n", REMEDY)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
