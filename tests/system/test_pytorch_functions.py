"""A model of PyTorch behind tisfast.serve: from a notebook and from a thread.  `make test-torch` runs it."""

import threading
from typing import Annotated

import numpy as np
import pytest
from numpy.typing import NDArray

import tisfast
from tests.system.helpers import SECONDS_MAX
from tests.system.notebooks import execute
from tests.unused_ports import closed_port

torch = pytest.importorskip("torch", reason="needs torch: make test-torch")
Rows = Annotated[NDArray[np.float32], tisfast.Shape(-1, 4)]

LAYER = """
from typing import Annotated
import numpy as np
import tisfast
import torch
from numpy.typing import NDArray
Rows = Annotated[NDArray[np.float32], tisfast.Shape(-1, 4)]
x = np.arange(8, dtype=np.float32).reshape(2, 4)
torch.manual_seed(SEED)
layer = torch.nn.Linear(4, 4)

@torch.inference_mode()
def predict(rows: Rows) -> Rows:
    return layer(torch.from_numpy(rows)).numpy()
"""
SERVE = "server = tisfast.serve(predict, http_port=PORT, grpc_port=None)\nserver"
ASK = "print(np.array_equal(server.client()(x), predict(x)), server.client()(x)[0, 0])"


def test_a_notebook_serves_a_layer_and_then_another_one(tmp_path):
    serve = SERVE.replace("PORT", str(closed_port()))
    cells = [LAYER.replace("SEED", "1"), serve, ASK, LAYER.replace("SEED", "2"), serve, ASK]
    _, table, first, _, again, second = execute(cells, tmp_path)
    assert "<td>rows: FP32[-1, 4]</td>" in table and "<td>rows: FP32[-1, 4]</td>" in again
    assert first.split()[0] == second.split()[0] == "True" and first != second


def test_a_thread_serves_a_layer():
    layer = torch.nn.Linear(4, 4)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = []

    @torch.inference_mode()
    def predict(rows: Rows) -> Rows:
        return layer(torch.from_numpy(rows)).numpy()

    def work() -> None:
        with tisfast.serve(predict, http_port=0, grpc_port=None, instances=2) as server:
            found.append(server.client()(rows))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(SECONDS_MAX)
    assert len(found) == 1 and np.array_equal(found[0], predict(rows))
