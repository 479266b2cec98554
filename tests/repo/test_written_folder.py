"""A folder that a program writes into a repository is there as a whole, or not at all."""

import pytest

from tisfast.errors import TisError
from tisfast.repo.written_folder import write_folder

CONFIG = {"backend": "python", "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}]}


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    folder = tmp_path / "models" / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1", "1/more/data": b"2"})
    write_folder(folder, CONFIG, {"3/model.py": b"3"})
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["models/m/3/model.py", "models/m/config.pbtxt"]
    assert 'name: "x"' in (folder / "config.pbtxt").read_text()


def test_what_cannot_be_written_leaves_the_one_before(tmp_path):
    folder = tmp_path / "m"
    write_folder(folder, CONFIG, {"1/model.py": b"1"})
    with pytest.raises(TisError, match="TYPE_FP33"):
        write_folder(folder, {"input": [{"name": "x", "data_type": "TYPE_FP33"}]}, {"1/model.py": b"2"})
    with pytest.raises(OSError, match="Is a directory"):
        write_folder(folder, CONFIG, {"1/model.py": b"2", "1": b""})
    assert [path.name for path in tmp_path.iterdir()] == ["m"] and (folder / "1/model.py").read_bytes() == b"1"
