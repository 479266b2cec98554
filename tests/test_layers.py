"""The layers of pyproject.toml hold for Cython modules too, which import-linter cannot read; tests lie as they do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # CPython 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
FOLDERS = sorted({path.parent for path in TESTS.rglob("test_*.py")})
# Not packages of tisfast.
NO_PACKAGES = {
    "clients", "coverage", "examples", "golden", "gpu", "install", "oracle", "perf", "system", "triton_qa", "workers",
}  # fmt: skip
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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_of_tests_is_a_package_and_tests_what_has_its_name(folder):
    assert (folder / "__init__.py").exists()
    inner = folder.relative_to(TESTS)
    assert inner == Path() or inner.parts[0] in NO_PACKAGES or (ROOT / "tisfast" / inner).is_dir()


SLEEP = re.compile(r"\b(time|asyncio)\.sleep\((?!0\))")
# The others look at servers from outside, by clients' own programs too, wait as models of Triton's do, and have a clock
# that the test turns.
MAY_SLEEP = {"clients", "system", "oracle", "triton_qa", "waiting.py", "models/lifecycle_world.py"}


def test_tests_wait_for_events_and_do_not_sleep():
    files = [path.relative_to(TESTS) for path in TESTS.rglob("*.py")]
    files = [file for file in files if file.parts[0] not in MAY_SLEEP and str(file) not in MAY_SLEEP]
    assert len(files) > 100
    assert not [str(file) for file in files if SLEEP.search((TESTS / file).read_text())]


def imported(path: Path) -> list[str]:
    """Modules that a file imports, at its top or below."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return named + ["." * node.level + (node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_what_tests_share_is_imported_from_helpers_by_its_full_name(folder):
    files = {path.stem: imported(path) for path in folder.glob("*.py")}
    assert not [name for name in files if name.startswith("tests_")]
    for name, modules in files.items():
        for module in modules:
            last = module.rpartition(".")[2]
            assert not module.startswith(".") and not last.startswith(("test_", "tests_")), f"{name} imports {module}"
            assert module not in files, f"{name} imports {module}: say tests....{module}"
