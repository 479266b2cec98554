import textwrap

import pytest

from tests.repo.sources import MODEL


@pytest.fixture
def add(tmp_path):
    """add("name", {"config.pbtxt": text, "1/model.py": text}) writes a model; the default file is a good model.py."""

    def write(name, files=None, repository="repo"):
        folder = tmp_path / repository / name
        folder.mkdir(parents=True)
        for path, text in ({"1/model.py": MODEL} if files is None else files).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(textwrap.dedent(text))
        return folder

    return write


@pytest.fixture
def repo(tmp_path):
    (tmp_path / "repo").mkdir(exist_ok=True)
    return tmp_path / "repo"
