"""The two forms of the worker runtime: compiled for this Python, interpreted in every other (setup.py)."""

from __future__ import annotations

import subprocess
import sys

from tests.workers.driver import ROOT, WORKERS

TYPED = sorted(p.stem for p in (WORKERS / "tisfast_worker").glob("*.pxd") if p.with_suffix(".py").exists())
DEBUG = ROOT.parts[-2:] == ("build", "debug")  # where all is interpreted: `make test-debug` tests that form


def files_under(python: str) -> list[str]:
    """Where the modules with types come from in an interpreter, and the calls of csrc."""
    code = "import sys, importlib; sys.path.append(sys.argv[1])\n"
    code += "for name in sys.argv[2:]: print(importlib.import_module('tisfast_worker.' + name).__file__)\n"
    code += "from tisfast_worker import native; print(getattr(native.direct, '__file__', 'ctypes.py'))"
    done = subprocess.run([python, "-I", "-c", code, WORKERS, *TYPED], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_servers_own_python_takes_the_compiled_form_and_every_other_the_sources(python):
    form = "so" if python == sys.executable and not DEBUG else "py"
    assert len(TYPED) >= 8
    assert [file.rpartition(".")[2] for file in files_under(python)] == [form] * (len(TYPED) + 1)


def test_a_compiled_module_is_not_older_than_its_source():
    """Else what is tested is not what is written: run `make setup`."""
    built = {path: path.with_name(path.name.partition(".")[0]) for path in WORKERS.glob("tisfast_worker/*.so")}
    pairs = [(module, stem.with_suffix(form)) for module, stem in built.items() for form in (".py", ".pyx")]
    assert [s.name for module, s in pairs if s.exists() and module.stat().st_mtime < s.stat().st_mtime] == []
