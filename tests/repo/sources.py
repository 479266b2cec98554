"""Models and ensembles of them as a look at a disk would find them, without a disk."""

from __future__ import annotations

from pathlib import Path

from tisfast.config.model_config import LoadedConfig, finish, parse
from tisfast.repo.scan_result import ModelSource, VersionSource
from tisfast.repo.snapshot import FileEntry, Snapshot

TENSORS = 'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }'
STEPS = {"a": (), "b": (), "c": (), "d": (), "ab": ("a", "b"), "bc": ("b", "c"), "outer": ("ab", "c")}
NAMES = tuple(STEPS)


def config(name: str, more: str = "") -> LoadedConfig:
    steps = STEPS.get(name, ())
    names = ["A", *(f"t{i}" for i in range(1, len(steps))), "B"]
    text = "".join(
        f'step {{ model_name: "{step}" model_version: -1 input_map {{ key: "A" value: "{names[i]}" }} '
        f'output_map {{ key: "B" value: "{names[i + 1]}" }} }} '
        for i, step in enumerate(steps)
    )
    kind = f'platform: "ensemble" ensemble_scheduling {{ {text} }}' if steps else 'backend: "python"'
    return finish(parse(f'name: "{name}" {kind} {TENSORS} {more}', f"{name}/config.pbtxt"), name)


CONFIGS = {name: config(name) for name in NAMES}
TWO = {name: config(name, "instance_group { count: 2 }") for name in "abcd"}


def source(name: str, *, revision: int = 1, versions: tuple[int, ...] = (1,), labels: int = 1, two: bool = False):
    folder = Path("/repo", name)
    found = tuple(VersionSource(number, folder / str(number), folder / str(number) / "model.py") for number in versions)
    entries = [FileEntry("labels.txt", labels, 0, 1), FileEntry("config.pbtxt", two, 0, 1)]
    entries += [FileEntry(f"{number}/model.py", revision * 10, revision, 1) for number in versions]
    chosen = TWO[name] if two else CONFIGS[name]
    return ModelSource(name, folder.parent, folder, chosen, found, None, False, (), Snapshot(tuple(sorted(entries))))


MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
