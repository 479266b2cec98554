"""The checkout of Triton's server whose tests are run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("TISFAST_TRITON_CHECKOUT", "")


def qa_folder() -> Path | None:
    """`qa` of the checkout; None where none is named.  Raises UsageError for one that is not there."""
    if not CHECKOUT:
        return None
    folder = Path(CHECKOUT).resolve() / "qa"
    if not (folder / "common" / "test_util.py").exists():
        raise pytest.UsageError(f"{CHECKOUT} is no checkout of triton-inference-server/server: it has no qa/common")
    return folder
