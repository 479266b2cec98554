"""Fill in what a model's files tell: name, backend, model file (rows 14.03, 14.15, 15.50).  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tisfast.config import schema
from tisfast.config.model_config import Draft, LoadedConfig, finish
from tisfast.config.served import PLATFORM_BACKENDS, PYTHON
from tisfast.repo.layout import stays_inside

MODEL_FILES: Final = {
    "model.py": PYTHON, "model.onnx": "onnxruntime", "model.plan": "tensorrt", "model.pt": "pytorch",
    "model.pt2": "pytorch", "model.savedmodel": "tensorflow", "model.graphdef": "tensorflow", "model.xml": "openvino",
}  # fmt: skip
DEFAULT_FILE: Final = "model.py"


def complete_from_files(
    draft: Draft, folder: Path, version: Path | None, *, gpus: tuple[int, ...] = (), partial: bool = False
) -> LoadedConfig:
    """The checked configuration after what the files tell was filled in.  Raises ConfigErrors with every error.

    folder: the model's; version: the folder of a version of it, None when there is none; gpus, partial: see finish.
    """
    fill_from_files(draft, folder, version)
    check_model_files(draft, [version] if version is not None else [])
    return finish(draft, folder.name, gpus=gpus, partial=partial)


def fill_from_files(draft: Draft, folder: Path, version: Path | None) -> None:
    """Fill in what the draft leaves open, in place; report a backend that cannot be told."""
    message, report = draft.message, draft.report
    if report.malformed:
        return
    message.name = message.name or folder.name
    if schema.is_ensemble(message):
        return
    if not message.backend:
        message.backend = _backend(draft, version)
    if message.backend == PYTHON:
        message.default_model_filename = message.default_model_filename or DEFAULT_FILE


def _backend(draft: Draft, version: Path | None) -> str:
    message, report = draft.message, draft.report
    if message.platform:
        return PLATFORM_BACKENDS.get(message.platform, "")  # an unknown platform is reported by config.served
    named = MODEL_FILES.get(message.default_model_filename, "")
    present = next((MODEL_FILES[name] for name in MODEL_FILES if version and (version / name).exists()), "")
    if not named and not present and version is not None:
        report.wrong(
            f"Invalid model name: Could not determine backend for model '{message.name}' with no backend in model "
            "configuration. Expected model name of the form 'model.<backend_name>'.",
            ("backend",), hint=f'write backend: "python", or put model.py into {version}',
        )  # fmt: skip
    return named or present


def model_files(draft: Draft, versions: Sequence[Path]) -> list[Path]:
    """The model file of each version folder, whether it exists or not; none for a name that leaves the folder.

    An ensemble has none.
    """
    name = draft.message.default_model_filename
    if schema.is_ensemble(draft.message):
        return []
    return [version / name for version in versions] if name and stays_inside(name) else []


def check_model_files(draft: Draft, versions: Sequence[Path]) -> None:
    """Report a model file name that leaves its folder, and every version that lacks its model file."""
    message, report = draft.message, draft.report
    name, key = message.default_model_filename, ("default_model_filename",)
    if not stays_inside(name):
        report.wrong(f"default_model_filename '{name}' leaves the version folder of {message.name}", key,
                     hint="name a file in the version folder")  # fmt: skip
    for file in model_files(draft, versions):
        if not file.is_file():
            others = sorted(path.name for path in file.parent.glob("*.py"))
            hint = f'default_model_filename: "{others[0]}" would take that one' if others else f"put {name} there"
            report.wrong(f"model file '{name}' of {message.name} not found in {file.parent}", key, hint=hint)
