"""A package to install that needs no index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str = "greeting", version: str = "1.0", code: str = "WORD = 'hello'\n") -> Path:
    """A wheel of one module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}.py": code,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                                             "Tag: py3-none-any\n",
    }  # fmt: skip
    record = f"{name}-{version}.dist-info/RECORD"
    lines = [f"{file},sha256={_hash(text)},{len(text)}" for file, text in files.items()]
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return path


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
