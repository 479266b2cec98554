"""The models that Triton's example clients ask for, as Python models of our own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SERVED: Final = (
    *("simple", "simple_int8", "simple_string", "simple_identity"),
    *("custom_identity_int32", "repeat_int32", "densenet_onnx"),
    *("image_decode", "image_brightness", "preprocess_inception_ensemble"),
    *("simple_sequence", "simple_dyna_sequence", "simple_string_dyna_sequence"),
)


def repository(folder: Path, names: Iterable[str]) -> Path:
    """A repository of some of them."""
    for name in names:
        (folder / name).symlink_to(HERE / name)
    return folder
