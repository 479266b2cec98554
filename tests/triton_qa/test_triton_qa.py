"""Triton's own QA tests against this server: `make test-triton-qa CHECKOUT=...`."""

from __future__ import annotations

import ast
import warnings

import pytest

from tests.triton_qa.checkout import qa_folder
from tests.triton_qa.suites import SUITES, Suite

TEST_SECONDS_MAX = 600


def _cases() -> list[pytest.param]:
    """One for each test of each suite; none without a checkout."""
    qa = qa_folder()
    if qa is None:
        return []
    return [
        pytest.param(suite, test, id=f"{suite.name}-{test.rpartition('.')[2] or 'start'}",
                     marks=pytest.mark.xfail(strict=True, reason=why) if why else ())
        for suite in SUITES
        for test, why in _tests(qa, suite)
    ]  # fmt: skip


def _tests(qa, suite: Suite) -> list[tuple[str, str]]:
    """(Class.test, why it differs or "") of a suite's tests."""
    if suite.refused:
        return [("", "")]
    file, _, wanted = suite.file.partition("::")
    with warnings.catch_warnings(action="ignore"):  # about Triton's code
        tree = ast.parse((qa / suite.folder / file).read_text())
    found = [
        (f"{kind.name}.{test.name}", suite.differs.get(test.name, ""))
        for kind in tree.body
        if isinstance(kind, ast.ClassDef) and wanted in ("", kind.name)
        for test in kind.body
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and _runs(suite, test.name)
    ]
    assert found, f"{suite.name}: no tests in {file}"
    return found


def _runs(suite: Suite, test: str) -> bool:
    return test.startswith("test_") and test not in suite.left_out and (not suite.only or test in suite.only)


@pytest.mark.parametrize(("suite", "test"), _cases())
def test_of_triton(servers, suite: Suite, test: str) -> None:
    server = servers.of(suite)
    if suite.refused:
        assert suite.refused in server.refuses()
        return
    done = server.run(suite.file.partition("::")[0], test, TEST_SECONDS_MAX, suite.test_env)
    log = server.log.read_text()
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}\n---- server\n{log[-4000:]}"
    if suite.alone:
        for text in suite.says:
            assert text in server.log.read_text()
