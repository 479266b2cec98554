"""What an archive may write: everything below its folder, and nothing else."""

from __future__ import annotations

import io
import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.extraction import Item, Tree


def file(name: str, content: bytes = b"x", mode: int = 0o644, mtime: float = 1e9) -> Item:
    return Item(name, "file", mode, mtime, content=partial(io.BytesIO, content))


def link(name: str, target: str) -> Item:
    return Item(name, "link", target=target)


def hard(name: str, target: str) -> Item:
    return Item(name, "hard link", target=target)


def write(root: Path, *items: Item) -> Tree:
    tree = Tree(root, "a.tar")
    for item in items:
        tree.add(item)
    tree.finish()
    return tree


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_files_folders_and_links(root):
    tree = write(
        root,
        Item("./", "folder"),
        Item("./lib", "folder"),
        file("./lib//one.py", b"1", 0o644),
        file("bin/deep/two", b"22", 0o755),
        link("bin/three", "deep/two"),
        hard("lib/four", "./lib/one.py"),
    )
    assert (root / "lib/one.py").read_bytes() == b"1" and (root / "lib/one.py").stat().st_mtime == 1e9
    assert os.access(root / "bin/deep/two", os.X_OK) and not os.access(root / "lib/one.py", os.X_OK)
    assert (root / "bin/three").read_bytes() == b"22" and (root / "lib/four").samefile(root / "lib/one.py")
    assert (tree.files, tree.size_bytes) == (6, 3)


def test_privileges_are_not_unpacked(root):
    write(root, file("su", mode=0o6777), file("mine", mode=0o000))
    assert (root / "su").stat().st_mode & 0o7777 == 0o755
    assert (root / "mine").stat().st_mode & 0o7777 == 0o600


def test_what_comes_again_replaces_what_was_there(root):
    write(root, link("a", "b"), file("a", b"1"), file("b", b"2"), hard("c", "b"), file("c", b"3"), link("b", "a"))
    assert not (root / "a").is_symlink() and (root / "a").read_bytes() == b"1"
    assert (root / "c").read_bytes() == b"3" and (root / "b").is_symlink()


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([file("/etc/passwd")], "named '/etc/passwd', which leaves"),
        ([file("../out")], "named '../out', which leaves"),
        ([file("a/../../out")], "which leaves"),
        ([file("nul\0byte")], "which leaves"),
        ([link("out", "/tmp"), file("out/file")], "'out' as a link or file, and files in it"),
        ([link("out", ".."), Item("out/folder", "folder")], "'out' as a link or file, and files in it"),
        ([file("a"), file("a/b")], "'a' as a link or file, and files in it"),
        ([Item("a", "folder"), link("a", "/tmp"), file("a/b")], "'a' both as a folder and as something else"),
        ([Item("a/b", "folder"), file("a")], "'a' both as a folder and as something else"),
        ([link("a", "../out")], "link 'a', which leads out of it, to '../out'"),
        ([link("a", "/etc/passwd")], "link 'a', which leads out of it, to '/etc/passwd'"),
        ([Item("d/e", "folder"), link("d/e/up", ".."), link("out", "d/e/up/../..")], "which leads out"),
        ([link("lib/python3", "/usr/bin/python3")], "which leads out"),
        ([link("a", "")], "link 'a' to ''"),
        ([hard("a", "/etc/passwd")], "named '/etc/passwd', which leaves"),
        ([hard("a", "../out")], "which leaves"),
        ([hard("a", "b")], "hard link 'a' to 'b', which is no earlier file of it"),
        ([link("b", "/etc/passwd"), hard("a", "b")], "which is no earlier file of it"),
        ([Item("dev", "other", about="a device")], "neither file, folder nor link (a device)"),
    ],
)
def test_what_is_refused(root, tmp_path, items, why):
    with pytest.raises(EnvironmentFailed) as caught:
        write(root, *items)
    assert why in str(caught.value) and "a.tar" in str(caught.value)
    assert os.listdir(tmp_path) == ["root"]


def test_what_is_refused_is_named_in_words_that_can_be_sent(root):
    """The names in an archive may be no UTF-8; what is wrong with it is in answers, in JSON."""
    with pytest.raises(EnvironmentFailed) as caught:
        write(root, file("../\udcff"))
    assert "'../\\udcff', which leaves" in str(caught.value) and str(caught.value).encode()


def test_links_may_lead_to_links_and_nowhere(root):
    write(root, link("a", "b/c"), link("b", "d"), Item("d", "folder"), file("d/c"), link("gone", "not/there"))
    assert (root / "a").read_bytes() == b"x"


def test_a_packed_virtual_environment_leads_to_an_interpreter_of_this_machine(root):
    write(root, link("bin/python3.11", "/usr/bin/env"), link("bin/python", "python3.11"))
    assert (root / "bin/python").exists()


@pytest.mark.parametrize("mtime", [float("nan"), float("inf"), 1e300])
def test_times_that_are_none_are_refused(root, mtime):
    with pytest.raises(EnvironmentFailed, match="holds 'a' with a time that is none"):
        write(root, file("a", mtime=mtime))


def test_long_chains_of_links_are_refused(root):
    links = [link(f"l{number}", f"l{number + 1}") for number in range(5000)]
    with pytest.raises(EnvironmentFailed, match="which leads through too many others"):
        write(root, *links, file("l5000"))


def test_bombs_are_bounded(root, monkeypatch):
    monkeypatch.setattr(limits, "ENVIRONMENT_BYTES_MAX", 10)
    with pytest.raises(EnvironmentFailed, match="holds more than 10 B"):
        write(root, file("a", b"123456"), file("b", b"123456"))
    monkeypatch.setattr(limits, "ENVIRONMENT_FILES_MAX", 2)
    with pytest.raises(EnvironmentFailed, match="more than 2 entries"):
        write(root, *(Item(f"f{i}", "folder") for i in range(3)))


PARTS = st.sampled_from(["a", "b", "..", ".", "", "/", "bin"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
ITEMS = st.one_of(
    NAMES.map(file), st.builds(link, NAMES, NAMES), st.builds(hard, NAMES, NAMES),
    NAMES.map(lambda name: Item(name, "folder")),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(ITEMS, max_size=12))
def test_nothing_is_ever_written_elsewhere(items):
    """Whatever an archive says: beside its folder nothing appears, and no link that is accepted leads there."""
    with tempfile.TemporaryDirectory() as parent:
        root = Path(parent, "root")
        root.mkdir()
        outside = Path(parent, "outside")
        outside.write_text("untouched")
        try:
            write(root, *items)
        except EnvironmentFailed:
            pass
        else:
            for folder, folders, files in os.walk(root):
                for name in (*folders, *files):
                    assert os.path.realpath(os.path.join(folder, name)).startswith(os.path.realpath(root))
        assert sorted(os.listdir(parent)) == ["outside", "root"]
        assert outside.read_text() == "untouched" and outside.stat().st_nlink == 1
