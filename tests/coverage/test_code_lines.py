"""What counts as a line of code, in Python and in Cython."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.coverage.code_lines import code_lines, lines_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("\n\n  \n", 0),
        ("# all of it\n\n   # is said\n", 0),
        ("x = 1  # and why\n", 1),
        ("x = 1", 1),
        ('"""A module."""\nx = 1\n', 1),
        ('"""A module\n\nof two lines."""\n', 0),
        ("def f():\n    '''Does it.'''\n    return 1\n", 2),
        ('r"""A docstring with a \\"""\n"""\n', 0),
        ('x = """a\n\n# no comment\n"""\n', 4),
        ('f(\n    """a\nb"""\n)\n', 4),
        ('x = "# no comment"\ny = \'"""\'\nz = 2\n', 3),
        ("x = [\n    1,\n\n    # of them\n    2,\n]\n", 4),
        ("x = a \\\n    + b\n", 2),
        ('def f(): "as short"\n', 1),
        ("cdef int f(self) except? -1:\n    return <int>c'#' & 0x7F  # a number\n", 2),
        ('cdef extern from "a.h":\n    """\n    #include "b.h"\n    """\n    int f()\n', 2),
    ],
)
def test_lines(text, lines):
    assert code_lines(text) == lines


def code_of(tree: ast.AST) -> set[int]:
    """Lines of statements that are no docstrings, as Python itself reads them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue
        if isinstance(node, ast.stmt) and not isinstance(getattr(node, "body", None), list):
            found |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return found


@pytest.mark.parametrize("folder", ["tisfast/native", "tisfast/config", "tests/native"])
def test_no_statement_of_the_real_files_is_left_out(folder):
    for file in sorted((ROOT / folder).glob("*.py")):
        text = file.read_text()
        inner = {line for line in code_of(ast.parse(text)) if text.splitlines()[line - 1].strip()}
        bare = {n for n, line in enumerate(text.splitlines(), 1) if line.strip().startswith("#")}
        assert code_lines(text) >= len(inner - bare), file


def test_files_add_up(tmp_path):
    for name in ("a.py", "b.pyx"):
        (tmp_path / name).write_text('"""A file."""\n\nx = 1\ny = 2\n')
    assert lines_in(tmp_path.iterdir()) == 4
