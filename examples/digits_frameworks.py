"""The handwritten digits in several frameworks, served side by side: accuracy and latency of each in one table.

    pip install 'tisfast[onnx,openvino,torch,tensorflow,trees,sklearn]' xgboost 'tritonclient[http]' onnx
    python examples/digits_frameworks.py                 # train, serve, ask, print
    python examples/digits_frameworks.py --keep FOLDER   # and leave the models there: tisfast serve --model-repository

Each model is trained on the same scans of scikit-learn's, is a folder with nothing but its file (and, of TorchScript, a
sample), and is asked for the same 450 scans that training never saw, one by one.  A framework that is not installed is
left out, and named.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as httpclient
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

HELD_OUT_SHARE = 0.25
SEED = 7
ACCURACY_LEAST = 0.93
START_SECONDS_MAX = 120


class Digits:
    """The scans as rows of 64 numbers from 0 to 1, those of the training and the others, and a small network."""

    def __init__(self) -> None:
        """Trains the network, which several frameworks get."""
        rows, labels = load_digits(return_X_y=True)
        parts = train_test_split(rows / 16, labels, test_size=HELD_OUT_SHARE, random_state=SEED, stratify=labels)
        self.rows, self.unseen = (part.astype(np.float32) for part in parts[:2])
        self.labels, self.unseen_labels = parts[2:]
        network = MLPClassifier((64,), alpha=0.1, max_iter=400, random_state=SEED)
        self.pipeline = make_pipeline(StandardScaler(), network)
        self.pipeline.fit(self.rows.astype(np.float64), self.labels)

    def layers(self) -> list[np.ndarray]:
        """Weights and biases with the scaler's folded in: relu(x @ W0 + b0) @ W1 + b1."""
        scaler, network = self.pipeline[0], self.pipeline[1]
        first = network.coefs_[0] / scaler.scale_[:, None]
        bias = network.intercepts_[0] - scaler.mean_ @ first
        found = [first, bias, network.coefs_[1], network.intercepts_[1]]
        return [each.astype(np.float32) for each in found]


def write_onnx(digits: Digits, version: Path) -> None:
    """ONNX, from the network's weights."""
    import onnx  # noqa: PLC0415 - may be missing
    from onnx import helper  # noqa: PLC0415

    weights = [onnx.numpy_helper.from_array(each, name) for each, name in zip(digits.layers(), "abcd", strict=True)]
    gemm = [("Gemm", ["X", "a", "b"], ["h"]), ("Relu", ["h"], ["r"]), ("Gemm", ["r", "c", "d"], ["Y"])]
    float32 = onnx.TensorProto.FLOAT
    sides = [[helper.make_tensor_value_info(name, float32, ["n", size])] for name, size in (("X", 64), ("Y", 10))]
    graph = helper.make_graph([helper.make_node(*each) for each in gemm], "digits", *sides, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, version / "model.onnx")


def write_openvino(digits: Digits, version: Path) -> None:
    """OpenVINO's own format; the layouts say that the first dimension is the batch."""
    import openvino as ov  # noqa: PLC0415 - may be missing
    from openvino import opset13 as op  # noqa: PLC0415

    first, bias, second, last = digits.layers()
    x = op.parameter([-1, 64], np.float32, name="X")
    hidden = op.relu(op.add(op.matmul(x, first, False, False), bias))
    y = op.add(op.matmul(hidden, second, False, False), last)
    for node, name in ((x, "X"), (y, "Y")):
        node.output(0).set_names({name})
    model = ov.Model([op.result(y)], [x], "digits")
    for port in (*model.inputs, *model.outputs):
        ov.layout_helpers.set_layout(port, ov.Layout("NC"))
    ov.save_model(model, version / "model.xml", compress_to_fp16=False)


def write_sklearn(digits: Digits, version: Path) -> None:
    """The pipeline itself."""
    import joblib  # noqa: PLC0415 - comes with scikit-learn

    joblib.dump(digits.pipeline, version / "model.joblib")


def torch_network(digits: Digits) -> Any:
    """The network as a module of PyTorch, which gets the weights that scikit-learn has found."""
    import torch  # noqa: PLC0415 - may be missing

    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        for parameter, found in zip(network.parameters(), digits.layers(), strict=True):
            parameter.copy_(torch.from_numpy(found.T.copy()))
    return network.eval()


def write_torchscript(digits: Digits, version: Path) -> None:
    """TorchScript; it says neither types nor shapes, so there is a sample beside it."""
    network = torch_network(digits)
    import torch  # noqa: PLC0415 - may be missing

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of PyTorch would rather have it exported
        torch.jit.script(network).save(str(version / "model.pt"))
    np.savez(version / "sample.npz", input=digits.rows[:2])


def write_export(digits: Digits, version: Path) -> None:
    """A program of torch.export, for batches of up to 64."""
    network = torch_network(digits)
    import torch  # noqa: PLC0415 - may be missing

    sizes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    program = torch.export.export(network, (torch.ones(2, 64),), dynamic_shapes=sizes)
    torch.export.save(program, version / "model.pt2")


def write_tensorflow(digits: Digits, version: Path) -> None:
    """A SavedModel of TensorFlow."""
    import tensorflow as tf  # noqa: PLC0415 - may be missing

    module = tf.Module()
    module.layers = [tf.Variable(each) for each in digits.layers()]

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, "X")])
    def read(rows: Any) -> dict[str, Any]:
        first, bias, second, last = module.layers
        return {"Y": tf.nn.relu(rows @ first + bias) @ second + last}

    tf.saved_model.save(module, str(version / "model.savedmodel"), signatures=read)


def write_xgboost(digits: Digits, version: Path) -> None:
    """A forest."""
    import xgboost  # noqa: PLC0415 - may be missing

    table = xgboost.DMatrix(digits.rows, digits.labels)
    options = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4, "eta": 0.3}
    xgboost.train(options, table, 40).save_model(version / "xgboost.ubj")


WRITERS: dict[str, Callable[[Digits, Path], None]] = {
    "digits_onnx": write_onnx,
    "digits_openvino": write_openvino,
    "digits_sklearn": write_sklearn,
    "digits_tensorflow": write_tensorflow,
    "digits_torch_export": write_export,
    "digits_torchscript": write_torchscript,
    "digits_xgboost": write_xgboost,
}


def write_models(digits: Digits, repository: Path) -> list[str]:
    """Names of those that were written."""
    written = []
    for name, write in WRITERS.items():
        version = repository / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        try:
            write(digits, version)
        except ModuleNotFoundError as error:
            version.rmdir()
            version.parent.rmdir()
            print(f"{name} is left out: there is no {error.name}")
            continue
        written.append(name)
    return written


def serve(repository: Path) -> tuple[subprocess.Popen[str], str]:
    """A server of the repository, and its address."""
    flags = [f"--model-repository={repository}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    command = [sys.executable, "-m", "tisfast", "serve", "--http-address=127.0.0.1", *flags]
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    said = []
    for line in process.stdout or ():
        said.append(line)
        if found := re.search(r"Started HTTPService at [^:]*:(\d+)", line):
            return process, f"127.0.0.1:{found[1]}"
    raise SystemExit("the server has not started:\n" + "".join(said))


def _ask(client: Any, described: dict[str, Any], rows: np.ndarray) -> int:
    """The digit that the model sees in the first of some scans."""
    given, made = described["inputs"][0], described["outputs"][0]
    rows = rows.astype({"FP32": np.float32, "FP64": np.float64}[given["datatype"]])
    tensor = httpclient.InferInput(given["name"], list(rows.shape), given["datatype"])
    tensor.set_data_from_numpy(rows)
    wanted = [httpclient.InferRequestedOutput(made["name"])]
    found = client.infer(described["name"], [tensor], outputs=wanted).as_numpy(made["name"])[0]
    return int(found.argmax() if found.size > 1 else found.item())


def measure(client: Any, name: str, digits: Digits) -> tuple[float, float]:
    """(share that was read rightly, median milliseconds of a request)."""
    described, right, took = client.get_model_metadata(name), 0, []
    _ask(client, described, digits.unseen[:1])
    for row, label in zip(digits.unseen, digits.unseen_labels, strict=True):
        began = time.perf_counter()
        right += _ask(client, described, row[None]) == label
        took.append((time.perf_counter() - began) * 1e3)
    return right / len(digits.unseen), statistics.median(took)


def main() -> int:
    """Train, serve, ask, print; 1 when a model reads too few digits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a folder for the models")
    options = parser.parse_args()
    digits, least = Digits(), 1.0
    with tempfile.TemporaryDirectory() as scratch:
        repository = options.keep or Path(scratch)
        names = write_models(digits, repository)
        process, address = serve(repository)
        try:
            with httpclient.InferenceServerClient(address) as client:
                print(f"{'model':20} {'right':>7} {'ms, median':>11}")
                for name in names:
                    share, milliseconds = measure(client, name, digits)
                    least = min(least, share)
                    print(f"{name:20} {share:7.1%} {milliseconds:11.2f}")
        finally:
            process.terminate()
            process.communicate(timeout=START_SECONDS_MAX)
    return 0 if least >= ACCURACY_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
