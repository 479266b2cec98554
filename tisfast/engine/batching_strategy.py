"""A custom batching strategy: two functions of the model's author that say which requests may still join a batch.

They run in the server, between a request and its dispatch, so they are written in a part of Python that cannot wait,
loop or reach anything: no loops, no imports, no calls but those in CALLS.  So the length of the file bounds a call.  It
is a guard against accidents, not a sandbox.  Layer 3 (engine).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.errors import ConfigError

CALLS: Final = {call.__name__: call for call in (abs, bool, float, int, len, max, min, round, sum)}
STATEMENTS: Final = (ast.Assign, ast.AugAssign, ast.If, ast.Return, ast.Pass)
EXPRESSIONS: Final = (
    *(ast.Name, ast.Constant, ast.Tuple, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.Attribute, ast.Call, ast.Load, ast.Store, ast.cmpop, ast.boolop, ast.unaryop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
)


class Candidate(NamedTuple):
    """The facts of a request that a strategy sees.  size: its batch size; nbytes: of its inputs; shapes: by input, as
    sent.
    """

    size: int
    nbytes: int
    shapes: dict[str, tuple[int, ...]]
    priority: int


ARGUMENTS: Final = {"begin": 1, "include": 2}


class Strategy:
    """One model's strategy, and the value of the batch that is being formed.

    failed: called with each exception of the author's functions; then no other request joins the batch.
    """

    def __init__(self, begin: Callable[[Candidate], Any], include: Callable[[Any, Candidate], Any]) -> None:
        self._begin, self._include = begin, include
        self._value: Any = None
        self.failed: Callable[[Exception], None] | None = None

    def start(self, request: Candidate) -> None:
        """A batch begins with this request."""
        try:
            self._value = self._begin(request)
        except Exception as error:
            self._value = None
            self._tell(error)

    def takes(self, request: Candidate) -> bool:
        """Whether it joins the batch; otherwise the batch is complete and it begins the next."""
        try:
            value = self._include(self._value, request)
        except Exception as error:
            self._tell(error)
            return False
        if value is None:
            return False
        self._value = value
        return True

    def _tell(self, error: Exception) -> None:
        if self.failed is not None:
            self.failed(error)


def compile_strategy(text: str, file: str) -> Strategy:
    """The strategy that a file's text defines.  Raises ConfigError with the place of what is not allowed in it."""
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        raise _error(file, error.lineno or 0, f"batching strategy: {error.msg}", "") from error
    for statement in tree.body:
        _check_top(statement, file)
    if sum(1 for _ in ast.walk(tree)) > limits.STRATEGY_NODES_MAX:
        raise _error(file, 1, f"batching strategy: more than {limits.STRATEGY_NODES_MAX} operations", "shorten it")
    names: dict[str, Any] = {"__builtins__": dict(CALLS)}
    exec(compile(tree, file, "exec"), names)
    functions = {name: names[name] for name in ARGUMENTS if name in names}
    if "include" not in functions:
        raise _error(file, 1, "batching strategy: there is no function 'include(batch, request)'", "")
    return Strategy(functions.get("begin", _nothing), functions["include"])


def _nothing(request: Candidate) -> int:
    return request.size


def _check_top(statement: ast.stmt, file: str) -> None:
    """Docstrings, constants, and the functions."""
    if isinstance(statement, ast.FunctionDef):
        _check_function(statement, file)
    elif isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
        _check_expression(statement.value, file)
    elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        raise _not_allowed(statement, file)


def _check_function(function: ast.FunctionDef, file: str) -> None:
    names = [argument.arg for argument in function.args.args]
    plain = ast.arguments(posonlyargs=[], args=function.args.args, kwonlyargs=[], kw_defaults=[], defaults=[])
    if function.decorator_list or ast.dump(function.args) != ast.dump(plain):
        raise _not_allowed(function, file)
    if len(names) != ARGUMENTS.get(function.name):
        text = f"batching strategy: '{function.name}' with {len(names)} arguments is not asked for"
        raise _error(file, function.lineno, text, "define include(batch, request), and begin(request) if you like")
    body = function.body
    while body:
        following: list[ast.stmt] = []
        for statement in body:
            following += _check_statement(statement, file)
        body = following


def _check_statement(statement: ast.stmt, file: str) -> list[ast.stmt]:
    """Returns the statements within it."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []
    if not isinstance(statement, STATEMENTS):
        raise _not_allowed(statement, file)
    for part in ast.iter_child_nodes(statement):
        if isinstance(part, ast.expr):
            _check_expression(part, file)
        elif isinstance(part, ast.operator):
            _check_node(part, statement, file)
    return [*statement.body, *statement.orelse] if isinstance(statement, ast.If) else []


def _check_expression(expression: ast.expr, file: str) -> None:
    _check_node(expression, expression, file)
    for node in ast.walk(expression):
        for part in ast.iter_child_nodes(node):
            _check_node(part, part if isinstance(part, ast.expr) else node, file)


def _check_node(node: ast.AST, line: ast.AST, file: str) -> None:
    allowed = isinstance(node, EXPRESSIONS)
    if isinstance(node, ast.Attribute):
        allowed = node.attr in Candidate._fields
    elif isinstance(node, ast.Call):
        allowed = isinstance(node.func, ast.Name) and node.func.id in CALLS and not node.keywords
    if not allowed:
        raise _not_allowed(line, file)


def _not_allowed(node: ast.AST, file: str) -> ConfigError:
    text = f"batching strategy: '{ast.unparse(node).splitlines()[0]}' is not allowed here"
    hint = (
        f"it runs in the server: conditions, arithmetic, {', '.join(sorted(CALLS))}, and a request's "
        f"{', '.join(Candidate._fields)}"
    )
    return _error(file, getattr(node, "lineno", 0), text, hint)


def _error(file: str, line: int, text: str, hint: str) -> ConfigError:
    return ConfigError(text, file=file, line=line, hint=hint)
