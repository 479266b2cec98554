"""The pages keep up with the code: links lead somewhere, and what is refused, limited or counted is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.oracle import bls_differences, differences, grpc_differences
from tests.oracle.batching_differences import DELIBERATE
from tisfast.config import unsupported
from tisfast.flags import SERVED
from tisfast.operations.routes import ROUTES

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "examples/README.md",
        ROOT / "perf/micro/README.md",
        ROOT / "tests/README.md",
        ROOT / "workers/WIRE.md",
    ]
)
OWN_FLAGS = ("execution-timeout-secs", "log-format", "codec-processes", "codec-bytes-min")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: no such file"
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


def test_every_refused_field_is_named():
    text = (ROOT / "docs/models.md").read_text().replace("_", " ")
    refused = [path[-1] for path, _ in unsupported._ASKS] + [key for key, _ in unsupported._GROUP_ASKS]
    general = {"enable", "level", "agents", "graphs", "busy_wait_events", "graph_spec", "output_copy_stream"}
    missing = [
        key
        for key in refused
        if key not in general and key.replace("_", " ").removesuffix(" buffer threshold") not in text
    ]
    assert not missing


def test_every_metric_is_named():
    text = (ROOT / "docs/metrics.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "tisfast/telemetry").glob("*.py"))
    names = set(re.findall(r'"((?:nv|tisfast)_\w+)[{"]', code))  # of f"tisfast_model_{what}" what stands before it
    assert len(names) > 10
    assert not [name for name in names if name not in text]


def test_restricted_categories_name_their_paths():
    text = (ROOT / "docs/security.md").read_text()
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| (.*) \|$", text, re.MULTILINE)
    told = {name: paths for names, paths in rows for name in re.findall("[a-z-]+", names)}
    assert set(told) >= {route.category for route in ROUTES}
    for route in ROUTES:
        plain_path = example_of(route.pattern.pattern)
        assert any(re.fullmatch(as_pattern(path), plain_path) for path in re.findall("`([^`]+)`", told[route.category]))


def example_of(pattern: str) -> str:
    """A path that a route takes: without what may be left out, NAME for each name."""
    pattern = re.sub(r"\(\?:(?:[^()]|\([^()]*\))*\)\?", "", pattern).replace("(?P<family>system|cuda)", "system")
    return re.sub(r"\(\?P<\w+>[^)]*\)", "NAME", pattern)


def as_pattern(path: str) -> str:
    """A path of the page, where ... stands for anything."""
    return re.escape(path).replace(re.escape("..."), ".*")


def test_flags_in_the_pages_exist():
    known = {flag.name for flag in SERVED}
    for page in (ROOT / "README.md", ROOT / "docs/models.md", ROOT / "docs/http.md", ROOT / "docs/operations.md",
                 ROOT / "docs/metrics.md", ROOT / "docs/cache.md", ROOT / "docs/tracing.md",
                 ROOT / "docs/storage.md"):  # fmt: skip
        named = set(re.findall(r"`[^`]*?--([a-z][a-z-]+)", page.read_text()))
        assert (
            not named
            - known
            - {
                "strict",
                "run",
                "help",
                "pid",
                "url",
                "shm-size",
                "format",
                "data-binary",
            }
        ), page.name
    assert set(OWN_FLAGS) <= known


def test_flags_name_pages_by_the_command_that_shows_them():
    """What is installed has no folder docs/ that a user could see."""
    texts = " ".join(flag.help for flag in SERVED)
    assert "docs/" not in texts
    named = re.findall(r"'tisfast docs (\w+)'", texts)
    assert set(named) == {"guests", "operations"}
    assert all((ROOT / f"docs/{page}.md").exists() for page in named)


def test_every_known_difference_from_triton_is_on_its_page():
    page = plain((ROOT / "docs/coming_from_triton.md").read_text())
    reasons = [each.reason for each in differences.TABLE]
    reasons += [*grpc_differences.TABLE, *(reason for reason, _ in grpc_differences.TALKS.values())]
    reasons += [*bls_differences.TABLE, *(reason for reason, _, _ in DELIBERATE.values())]
    assert len(reasons) > 50
    assert not [reason for reason in reasons if plain(reason) not in page]


def test_pages_with_differences_from_triton_are_on_that_page():
    page = (ROOT / "docs/coming_from_triton.md").read_text()
    inner = {"coming_from_triton", "behaviours", "experiments", "benchmarks", "architecture", "glossary"}
    others = {each.stem for each in ROOT.glob("docs/*.md") if "2.51" in each.read_text()} - inner
    assert not [name for name in others if f"({name}.md" not in page]


def plain(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())


def test_the_readme_and_the_index_list_every_page():
    for index, folder in (("README.md", "docs/"), ("docs/index.md", "")):
        text = (ROOT / index).read_text()
        names = [page.name for page in ROOT.glob("docs/*.md") if page.name != "index.md"]
        assert not [name for name in names if f"({folder}{name}" not in text], index
