"""Puts model repositories of Triton's QA together, out of a checkout of its public repository.

Nothing of the checkout is in this tree: what a suite needs is copied to the test's folder when it runs.  Backends in C
that Triton's tests use have stand-ins here, which are Python models (models/).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

STAND_INS = Path(__file__).with_name("models")
EXAMPLES = Path(__file__).parents[2] / "examples"
DIMS = re.compile(r"dims:.*\[.*\]")


class Layout:
    """One suite's repository.  qa: the `qa` folder of the checkout; models: the repository, in a folder of the test."""

    def __init__(self, qa: Path, models: Path) -> None:
        self.qa = qa
        self.models = models

    def python(
        self, *names: str, of: str = "", files: dict[str, str] | None = None, more: str = "", **changes: str
    ) -> None:
        """Models of qa/python_models.

        of: the folder there, the model's name by default; files: of that folder, by their names in the version's; more:
        lines behind the configuration; changes: of lines of it, by their keys.
        """
        for name in names:
            source = self.qa / "python_models" / (of or name)
            folder = self.models / name
            (folder / "1").mkdir(parents=True, exist_ok=True)
            for target, file in ({"model.py": "model.py"} if files is None else files).items():
                shutil.copy(source / file, folder / "1" / target)
            config = source / "config.pbtxt"
            if config.exists():
                self._configure(name, config.read_text(), more, changes)

    def copied(self, folder: str, *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        """A repository of the checkout as it is, or some of its models.  Backends in C get their stand-ins."""
        for source in sorted((self.qa / folder).iterdir()):
            if source.is_dir() and source.name not in without and (not only or source.name in only):
                shutil.copytree(source, self.models / source.name, dirs_exist_ok=True)
                (self.models / source.name / "1").mkdir(exist_ok=True)
                self.stand_in(source.name)

    def model(self, name: str, config: str) -> None:
        """A model by its configuration."""
        (self.models / name / "1").mkdir(parents=True, exist_ok=True)
        (self.models / name / "config.pbtxt").write_text(config)
        self.stand_in(name)

    def custom(self, name: str, more: str = "", *, as_name: str = "", dims: str = "", **changes: str) -> None:
        """A model of qa/custom_models."""
        source = self.qa / "custom_models" / name / "config.pbtxt"
        text = DIMS.sub(f"dims: {dims}", source.read_text()) if dims else source.read_text()
        text = text.replace("KIND_GPU", "KIND_CPU")
        target = as_name or name
        (self.models / target / "1").mkdir(parents=True, exist_ok=True)
        self._configure(target, text, more, changes)
        self.stand_in(target)

    def example(self, path: str) -> None:
        """A model of this tree's examples that Triton's tests take from its examples' repository."""
        shutil.copytree(EXAMPLES / path, self.models / Path(path).name)

    def rename(self, name: str, old: str, new: str) -> None:
        """Replace text in a model's configuration."""
        config = self.models / name / "config.pbtxt"
        config.write_text(config.read_text().replace(old, new))

    def stand_in(self, name: str) -> None:
        """Where the model's backend is one of those in C, the Python model that does the same."""
        config = self.models / name / "config.pbtxt"
        if not config.exists():
            return
        text = config.read_text()
        found = re.search(r'^(?:backend|platform): *"(\w+)"', text, re.MULTILINE)
        stand_in = STAND_INS / f"{found[1]}.py" if found else None
        if stand_in is not None and stand_in.exists():
            (self.models / name / "1").mkdir(exist_ok=True)
            shutil.copy(stand_in, self.models / name / "1" / "model.py")
            text = re.sub(r"^default_model_filename:.*$", "", text, flags=re.MULTILINE)  # a library
            config.write_text(text.replace(found[0], 'backend: "python"'))

    def _configure(self, name: str, text: str, more: str, changes: dict[str, str]) -> None:
        if re.search(r"^name:", text, re.MULTILINE):
            changes = {"name": f'"{name}"', **changes}
        for key, value in changes.items():
            text = re.sub(rf"^{key}:.*$", f"{key}: {value}" if value else "", text, flags=re.MULTILINE)
        (self.models / name / "config.pbtxt").write_text(f"{text}\n{more}\n")
