"""The layers of pyproject.toml hold for Cython modules too, which import-linter cannot read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # CPython 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*ROOT.glob("tisfast/**/*.pyx"), *ROOT.glob("tisfast/**/*.pxd")])
IMPORT = re.compile(r"^\s*(?:from\s+(tisfast[\w.]*)\s+c?import\s+([\w, (]*)|c?import\s+(tisfast[\w.]*))", re.MULTILINE)


CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def layers() -> dict[str, int]:
    contract = CONTRACTS[0]
    return {
        name.strip().removeprefix("("): height
        for height, line in enumerate(reversed(contract["layers"]))
        for name in re.split(r"[|:]", line)
    }


def layer_of(module: str, known: dict[str, int]) -> str | None:
    return next((name for name in known if module == name or module.startswith(name + ".")), None)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_cython_module_imports_only_from_below(path):
    known = layers()
    own = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts), known)
    for package, names, direct in IMPORT.findall(path.read_text()):
        modules = [package or direct]
        if package == "tisfast":
            modules = [f"tisfast.{name.strip(' (')}" for name in names.split(",")]
        for module in modules:
            imported = layer_of(module, known)
            if own is None or imported is None or imported == own:
                continue
            assert known[imported] < known[own], f"{own} imports {module}"
            for contract in CONTRACTS[1:]:
                assert own not in contract["source_modules"] or imported not in contract["forbidden_modules"], contract
