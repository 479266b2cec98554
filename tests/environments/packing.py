"""Real environments for tests: copies of this machine's CPythons that run wherever they lie, packed as conda-pack does.

In such an archive the environment's files lie at the top; what carried the name of the folder it was made in carries a
placeholder instead; and bin/conda-unpack, run with the environment's own interpreter, puts the right name in its place.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PLACEHOLDER = "/opt/packed_environment_placeholder"
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "__pycache__",
            "pydoc_data", "distutils", "unittest", "sqlite3", "dbm", "curses", "wsgiref", "xmlrpc"}  # fmt: skip
UNPACK = f'''#!{PLACEHOLDER}/bin/python
"""Puts the name of the folder where this lies in place of the placeholder."""
import os
import sys

prefix = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for name in ["bin/conda-unpack", "bin/greet", "lib/greeting.txt"]:
    path = os.path.join(prefix, name)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("{PLACEHOLDER[:4]}" + "{PLACEHOLDER[4:]}", prefix))
print("unpacked under", sys.version.split()[0])
'''


@lru_cache(maxsize=1)
def pythons() -> dict[str, Path]:
    """CPython 3.8 to 3.14 as pyenv has them, and this one, by minor version."""
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found: dict[tuple[int, int], Path] = {}
    for python in sorted(root.glob("3.*/bin/python")):
        numbers = python.parts[-3].split(".")
        if len(numbers) == 3 and all(map(str.isdecimal, numbers)) and 8 <= int(numbers[1]) <= 14:
            found[3, int(numbers[1])] = python
    ours = sys.version_info[:2]  # with both numbers: a system may have no python3, or another one of that name
    found.setdefault(ours, Path(sysconfig.get_config_var("BINDIR"), "python{}.{}".format(*ours)))
    return {".".join(map(str, version)): found[version] for version in sorted(found)}


def interpreter_files(python: Path) -> Iterator[tuple[str, Path]]:
    """What of an installed CPython runs models, by its name in an environment."""
    about = "import sys, sysconfig; print(sys.base_prefix, *sys.version_info[:2], sep='\\n')"
    done = subprocess.run([str(python), "-I", "-c", about], capture_output=True, text=True, check=True)
    base, major, minor = done.stdout.split()
    name = f"python{major}.{minor}"
    yield f"bin/{name}", Path(base, "bin", name)
    for library in Path(base, "lib").glob(f"libpython{major}.{minor}.so*"):
        yield f"lib/{library.name}", library
    standard = Path(base, "lib", name)
    for folder, folders, files in os.walk(standard):
        folders[:] = [each for each in folders if each not in LEFT_OUT and not each.startswith("config-")]
        for file in files:
            if not file.startswith("_test"):
                path = Path(folder, file)
                # Debian's has links into /etc: a packed environment holds what they lead to.
                yield f"lib/{name}/{path.relative_to(standard)}", path.resolve()


def write_tar(target: Path, python: Path, extra: dict[str, str] | None = None) -> Path:
    """Pack the environment of an interpreter.  extra: further text files."""
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(target.suffix, "w:")
    options = {"compresslevel": 1} if mode in ("w:gz", "w:bz2") else {}
    with tarfile.open(target, mode, **options) as tar:
        name = ""
        for name, path in interpreter_files(python):
            tar.add(path, name, recursive=False)
        version = next(part for part in name.split("/") if part.startswith("python3"))
        for link in ("python3", "python"):
            add_link(tar, f"bin/{link}", version)
        for name, text in (_texts() | (extra or {})).items():
            add_text(tar, name, text)
    return target


def write_zip(target: Path, python: Path) -> Path:
    """The same as a zip file, where conda-pack writes links as copies."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for name, path in interpreter_files(python):
            zipped.write(path, name)
            if name.startswith("bin/python"):
                zipped.write(path, "bin/python")
        for name, text in _texts().items():
            entry = zipfile.ZipInfo(name, (2024, 1, 2, 3, 4, 6))
            entry.external_attr = (0o100755 if name.startswith("bin/") else 0o100644) << 16
            zipped.writestr(entry, text)
    return target


def _texts() -> dict[str, str]:
    return {
        "bin/conda-unpack": UNPACK,
        "bin/greet": f"#!{PLACEHOLDER}/bin/python\nprint('hello')\n",
        "lib/greeting.txt": f"I live in {PLACEHOLDER}\n",
    }


def add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o755 if name.startswith("bin/") else 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def write_folder(folder):
    """The least that is taken for an unpacked environment: an interpreter that is none."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return folder
