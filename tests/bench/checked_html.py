"""Pages of reports: a reader that fails where tags do not close each other, and a browser that draws them."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Checked(HTMLParser):
    """Fails where tags do not close each other; keeps the texts of each SVG."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.charts: list[list[str]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag == "svg":
            self.charts.append([])
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "svg" in self.open and self.open[-1] == "text":
            self.charts[-1].append(data)


def draw(text: str, folder: Path, width: int) -> None:
    """Have the browser draw a page; it complains of nothing."""
    (folder / "page.html").write_text(text)
    picture = folder / "page.png"
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--window-size={width},900")
    files = (f"--user-data-dir={folder}/profile", f"--screenshot={picture}", f"file://{folder}/page.html")
    ran = subprocess.run([BROWSER, *flags, *files], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in ran.stderr
    assert picture.stat().st_size > 10_000
