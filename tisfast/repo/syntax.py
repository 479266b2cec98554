"""Finds errors in a model.py without running it.  Layer 3 (repo).

Apart from model_file, so that serving does not import ast and subprocess.
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments.environment import Environment
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.model_file import CLASS

BATCH: Final = "execute_batch"
EXECUTES: Final = ("execute", BATCH)
PARSE: Final = "import sys; compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec')"


def check_file(file: Path, environment: Environment | None, arrays_for: str = "") -> list[ConfigError]:
    """Syntax errors, a missing class, no way to execute.  environment: the model's own, None for the server's.

    A model with its own interpreter is parsed by that one: its syntax may be newer than ours.  One that is still to be
    prepared cannot be asked.  arrays_for: a key of the configuration that wants execute_batch, "" for none.
    """
    try:
        source = layout.read_file(file, limits.MODEL_FILE_BYTES_MAX)
    except OSError as error:
        return [ConfigError(f"cannot read the model file: {error.strerror}", file=str(file))]
    if environment is not None and environment.interpreter is not None:
        wrong = _parsed_by(environment.interpreter, file)
        if wrong is not None:
            return [wrong]
    try:
        tree = ast.parse(source, str(file))
    except SyntaxError as error:
        return [] if environment is not None else [_syntax_error(error, file)]
    except ValueError as error:  # a null byte, before Python 3.12
        return [ConfigError(f"model.py cannot be parsed: {error}", file=str(file))]
    return _class_errors(tree, file, arrays_for if BATCH.encode() not in source else "")


def _syntax_error(error: SyntaxError, file: Path) -> ConfigError:
    return ConfigError(f"syntax error in the model: {error.msg}", file=str(file), line=error.lineno or 0,
                       column=error.offset or 0, hint=(error.text or "").strip())  # fmt: skip


def _parsed_by(interpreter: Path, file: Path) -> ConfigError | None:
    """The syntax error that another interpreter reports."""
    command = [str(interpreter), "-I", "-c", PARSE, str(file)]
    seconds = limits.INTERPRETER_CHECK_SECONDS_MAX
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return ConfigError(f"the model's interpreter does not run: {error}", file=str(interpreter))
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return ConfigError(f"{interpreter} cannot parse the model: {said[-1] if said else done.returncode}", file=str(file))


def _class_errors(tree: ast.Module, file: Path, arrays_for: str) -> list[ConfigError]:
    """arrays_for: only where the file does not even mention execute_batch, which could be given to the class anyhow."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    model = next((node for node in statements if isinstance(node, ast.ClassDef) and node.name == CLASS), None)
    if model is None:
        if any(_binds(node, CLASS) for node in statements):
            return []
        return [ConfigError(f"the model file defines no class {CLASS}", file=str(file),
                            hint=f"name the class {CLASS}")]  # fmt: skip
    inherits = any(not (isinstance(base, ast.Name) and base.id == "object") for base in model.bases)
    if inherits:
        return []
    if not any(_binds(node, name) for node in model.body for name in EXECUTES):
        return [ConfigError(f"class {CLASS} does not implement execute", file=str(file), line=model.lineno,
                            column=model.col_offset + 1, hint="add: def execute(self, requests)")]  # fmt: skip
    if arrays_for and not _may_get_more(model):
        return [ConfigError(f"'{arrays_for}' is about the arrays of execute_batch, and class {CLASS} has none",
                            file=str(file), line=model.lineno, column=model.col_offset + 1,
                            hint=f"add: def {BATCH}(self, inputs), or remove '{arrays_for}'")]  # fmt: skip
    return []


def _may_get_more(model: ast.ClassDef) -> bool:
    """Whether a class may have attributes that its body does not show."""
    return bool(model.decorator_list or model.keywords) or any(_binds(node, "__getattr__") for node in model.body)


def _binds(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives `name` a value, as far as can be seen; a star import could."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name == name
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any((alias.asname or alias.name) in (name, "*") for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
