"""`tisfast env build | check | list | prune`: the Python environments of models.  Top layer (cli)."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tisfast.cli_arguments import Parser
from tisfast.config.backend_flags import read_backends
from tisfast.config.environments import EnvironmentSettings, read_environment_settings
from tisfast.environments import activation
from tisfast.environments.backend_requirements import environment_named
from tisfast.environments.build import BuildContext, build, measured
from tisfast.environments.build_errors import EnvironmentFailed, size_text
from tisfast.environments.cache import CacheEntry, EnvironmentCache
from tisfast.environments.environment import Environment, Interpreter
from tisfast.environments.environment_kind import recognise
from tisfast.environments.inspection import inspect
from tisfast.environments.preparing import ready_made
from tisfast.errors import ConfigError
from tisfast.processes.nursery_process import worker_main

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
PATH_HELP: Final = "an archive, a requirements file, an environment's folder, or an interpreter"


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one of the commands; the exit code.  Raises TisError."""
    values = _parser().parse_args(list(arguments))
    settings = read_environment_settings(values.environment_cache_dir, environ)
    cache = EnvironmentCache(Path(settings.folder()))
    try:
        return _run(values, settings, cache)
    except OSError as error:
        raise EnvironmentFailed(
            f"tisfast env {values.command} failed: {error}", f"may {cache.folder} be written by this user?"
        ) from error


def _run(values: argparse.Namespace, settings: EnvironmentSettings, cache: EnvironmentCache) -> int:
    if values.command == "list":
        return _list(cache)
    if values.command == "prune":
        return _prune(cache, values.older_than, values.dry_run)
    environment = _meant(values)
    interpreter = _prepared(_context(cache, settings), environment)
    if values.command == "build":
        print(interpreter.path)
        return 0
    return _check(environment, interpreter)


def _meant(values: argparse.Namespace) -> Environment:
    """Raises ConfigError where it is none, or two."""
    if bool(values.path) == bool(values.backend):
        raise ConfigError(f"tisfast env {values.command} takes a path or --backend NAME", hint="name one of the two")
    if values.path:
        return recognise(Path(values.path), values.path, values.python)
    return environment_named(values.backend, read_backends(values.backend_directory, []), values.python)


def _parser() -> Parser:
    parser = Parser(prog="tisfast env", allow_abbrev=False, description="The Python environments of models.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="build | check | list | prune")
    build_one = commands.add_parser("build", help="prepare an environment now, as a load would; prints its interpreter")
    check_one = commands.add_parser("check", help="prepare it, start it, and say what it is worth to models")
    for one in (build_one, check_one):
        one.add_argument("path", nargs="?", default="", help=PATH_HELP)
        one.add_argument("--backend", default="", metavar="NAME", help="what this backend needs, in place of a path: "
                         "as with tisfast serve --backend-environments=auto")  # fmt: skip
        one.add_argument("--backend-directory", default="", help="as with tisfast serve")
        one.add_argument("--python", default="", help="EXECUTION_ENV_PYTHON: version or interpreter for requirements")
    list_all = commands.add_parser("list", help="what lies in the cache")
    prune = commands.add_parser("prune", help="remove what no running server uses")
    prune.add_argument("--older-than", type=_age, default=0.0, metavar="AGE",
                       help="only what was not used for so long: 12h, 30d, 8w")  # fmt: skip
    prune.add_argument("--dry-run", action="store_true", help="say what would go")
    for each in (build_one, check_one, list_all, prune):
        each.add_argument("--environment-cache-dir", default="", help="as with tisfast serve")
    return parser


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 12h, 30d or 8w")
    return float(found[1]) * SECONDS[found[2]]


def _context(cache: EnvironmentCache, settings: EnvironmentSettings) -> BuildContext:
    return BuildContext(cache, settings.pyenv_root, settings.index)


def _prepared(context: BuildContext, environment: Environment) -> Interpreter:
    if environment.interpreter is not None:
        return ready_made(environment)
    began = time.monotonic()
    entry = build(context, environment, lambda text: print(text, file=sys.stderr))
    print(f"{environment} is ready after {time.monotonic() - began:.1f} s: {_facts(entry)}", file=sys.stderr)
    return Interpreter(str(context.cache.interpreter(entry.key)), _variables(context.cache, entry), environment)


def _variables(cache: EnvironmentCache, entry: CacheEntry) -> tuple[tuple[str, str], ...]:
    found = {**dict(entry.variables), **activation.variables(cache.home(entry.key), os.environ)}
    return tuple(sorted(found.items()))


def _facts(entry: CacheEntry) -> str:
    return f"Python {entry.python}, {size_text(entry.size_bytes)} in {entry.files} files"


def _check(environment: Environment, interpreter: Interpreter) -> int:
    found = inspect(interpreter, worker_main().parent)
    size_bytes, files = measured(Path(interpreter.path).parent.parent) if _is_of_its_own(environment) else (0, 0)
    lines: list[tuple[str, Any]] = [
        ("environment", environment),
        ("interpreter", interpreter.path),
        ("python", f"{found.python.implementation} {found.python.number}, {found.python.machine}"),
        ("worker runtime", found.runtime_error or "imports"),
        ("numpy", found.numpy or f"none, so no tensors ({found.numpy_error}); {environment.remedy('numpy')}"),
    ]
    if files:
        lines.append(("size", f"{size_text(size_bytes)} in {files} files"))
    for name, text in lines:
        print(f"{name:<15} {text}")
    return 1 if found.runtime_error else 0


def _is_of_its_own(environment: Environment) -> bool:
    """A system's interpreter lies among all else that the system has."""
    return environment.kind != "interpreter"


def _list(cache: EnvironmentCache) -> int:
    rows = list(cache.entries())
    for key, entry, age in rows:
        print(f"{key}  {'not whole' if entry is None else _facts(entry)}  used {_ago(age)} ago"
              + (f"  {entry.source}" if entry is not None else ""))  # fmt: skip
    total = sum(entry.size_bytes for _, entry, _ in rows if entry is not None)
    print(f"{len(rows)} environment(s) in {cache.folder}, {size_text(total)}")
    return 0


def _prune(cache: EnvironmentCache, seconds: float, dry_run: bool) -> int:
    freed = 0
    for key, entry, removed in cache.prune(seconds, dry_run=dry_run):
        what = "in use" if not removed else "would be removed" if dry_run else "removed"
        print(f"{key}  {what}" + (f"  {_facts(entry)}  {entry.source}" if entry is not None else "  not whole"))
        freed += entry.size_bytes if removed and entry is not None else 0
    print(f"{size_text(freed)} {'would be freed' if dry_run else 'freed'} in {cache.folder}")
    return 0


def _ago(seconds: float) -> str:
    unit = next((name for name in ("w", "d", "h", "m") if seconds >= 2 * SECONDS[name]), "s")
    return f"{seconds / SECONDS[unit]:.0f} {unit}"
