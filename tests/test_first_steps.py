"""`tisfast docs` and `tisfast init`: what a newcomer types first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tisfast import cli_docs, cli_init
from tisfast.cli import main
from tisfast.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]


def test_each_page_is_listed_with_its_title(capsys):
    assert main(["docs"]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    written = [path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")]
    assert set(lines) == set(map(str, written))
    assert lines["bls"] == "Models that call other models"


@pytest.mark.parametrize("arguments", [["docs"], ["docs", "models"]])
def test_a_reader_that_has_read_enough_gets_no_traceback(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tisfast", *arguments], cwd=ROOT, stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("name", ["models", "models.md", "docs/models.md"])
def test_a_page_is_printed_as_it_is_written_where_no_terminal_is(name, capsys):
    assert cli_docs.main([name]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_an_unknown_page_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no page 'modls'; did you mean 'models'\?"):
        cli_docs.main(["modls"])
    with pytest.raises(ConfigError, match="'tisfast docs' lists the pages"):
        cli_docs.main(["qqqqqqqq"])


def test_the_first_model_passes_its_own_test_and_check(tmp_path, capsys):
    folder = tmp_path / "models"
    assert main(["init", str(folder)]) == 0
    assert f"tisfast serve --model-repository {folder}" in capsys.readouterr().out
    assert f"--model-repository {folder}" in (folder / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "."],
        cwd=folder / "scale" / "1",
        env={**os.environ, "PYTHONPATH": str(ROOT / "workers")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    assert main(["check", str(folder)]) == 0


def test_nothing_that_exists_is_written_over(tmp_path):
    cli_init.main([str(tmp_path / "m")])
    model = tmp_path / "m" / "scale" / "1" / "model.py"
    model.write_text("mine")
    with pytest.raises(ConfigError, match="exists, and nothing was written"):
        cli_init.main([str(tmp_path / "m")])
    assert model.read_text() == "mine"
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "other").write_text("kept")
    assert cli_init.main([str(kept)]) == 0 and (kept / "other").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        cli_init.main([str(tmp_path / "file" / "models")])
