"""Files that run code when they are read: only with --allow-pickled-models, whatever they are called."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn")
pytest.importorskip("skops")

from tests.convert.made_models import converted, network  # noqa: E402
from tisfast.errors import TisError  # noqa: E402

X = np.ones((3, 8), np.float32)
SHORT = {"samples": {"x": X}}


class Seen:
    """Its pickle makes a file when it is read."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self):
        return Path.touch, (self._trace,)


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "the code has run"


def plain(path, trace):
    path.write_bytes(pickle.dumps(Seen(trace)))


def zipped(path, trace):
    """As torch and skops pack theirs."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("schema.json", "data.pkl", "net/data.pkl", "archive/data.pkl"):
            archive.writestr(name, pickle.dumps(Seen(trace)))


NAMES = ["net.skops", "net.onnx", "net.joblib", "net.pkl", "net.pt", "net.pt2", "model.savedmodel/saved_model.pb",
         "folder/model.onnx"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("write", [plain, zipped])
def test_without_leave_nothing_of_it_runs(tmp_path, trace, write, name):
    path = tmp_path / "source" / name
    path.parent.mkdir(parents=True)
    write(path, trace)
    with pytest.raises(TisError):
        converted(path.parent if "/" in name else path, **SHORT)
    assert not trace.exists()


def test_the_reason_is_what_to_do(tmp_path, trace):
    plain(tmp_path / "net.skops", trace)
    with pytest.raises(TisError, match="can run code when it is read: if you trust it, add --allow-pickled-models"):
        converted(tmp_path / "net.skops", **SHORT)
    assert not trace.exists()
    with pytest.raises(TisError, match="holds a NoneType, without any of predict"):  # which `touch` gives
        converted(tmp_path / "net.skops", **SHORT, allow_pickled=True)
    assert trace.exists()  # so the file does what this page says


@pytest.mark.parametrize("write", [plain, zipped])
def test_samples_run_nothing_in_any_case(tmp_path, trace, write):
    write(tmp_path / "x.npz", trace)
    np.save(tmp_path / "object.npy", np.array([Seen(trace)], object), allow_pickle=True)
    np.savez(tmp_path / "object.npz", x=np.array([Seen(trace)], object))
    for name in ("x.npz", "object.npy", "object.npz"):
        with pytest.raises(TisError):
            converted(network(tmp_path), samples=tmp_path / name, allow_pickled=True)
    assert not trace.exists()


def test_modules_beside_the_file_run_only_with_leave(tmp_path, trace):
    """What scikit-learn or skops would import if it were installed is no way in."""
    import skops.io  # noqa: PLC0415 - it is there
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415

    folder = tmp_path / "source"
    folder.mkdir()
    skops.io.dump(LinearRegression().fit(X, X[:, 0]), folder / "net.skops")
    for name in ("quantile_forest", "lightgbm", "xgboost", "catboost", "polars", "pandas", "pyarrow"):
        (folder / f"{name}.py").write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\n")
    found = converted(folder / "net.skops", samples={"x": X}, targets=["sklearn", "onnx"], precisions=["fp32"])
    assert [each.status for each in found.tries] == ["ok", "ok"], found.tries
    assert not trace.exists()
