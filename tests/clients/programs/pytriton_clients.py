"""PyTriton's clients: ModelClient, DecoupledModelClient, FuturesModelClient.  Argument: http or grpc."""

import numpy as np
from pytriton.client import DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import PyTritonClientInferenceServerError, PyTritonClientTimeoutError
from steps import WAIT_SECONDS_MAX, addresses, arguments, refused, waiting

HTTP, GRPC, _ = addresses()
GRPC_ONLY = arguments() == ["grpc"]
URL = f"grpc://{GRPC}" if GRPC_ONLY else f"http://{HTTP}"
A = np.array([1, 2], np.float32)


def waits():
    """It waits for a model that is not there, and tells that as such; then for one that comes."""
    with ModelClient(URL, "nobody", init_timeout_s=1) as client, refused(PyTritonClientTimeoutError, "nobody"):
        client.wait_for_model(1)
    waiting()
    with ModelClient(URL, "sum", init_timeout_s=WAIT_SECONDS_MAX) as client:
        client.wait_for_model(WAIT_SECONDS_MAX)


def infers():
    with ModelClient(URL, "sum", init_timeout_s=WAIT_SECONDS_MAX) as client:
        assert [each.name for each in client.model_config.inputs] == ["A", "B"]
        np.testing.assert_array_equal(client.infer_sample(A, A)["SUM"], 2 * A)
        rows = np.stack([A, A + 1])
        np.testing.assert_array_equal(client.infer_batch(A=rows, B=rows)["SUM"], 2 * rows)
        with refused(PyTritonClientInferenceServerError, "unexpected shape for input"):
            client.infer_sample(np.zeros(3, np.float32), A)
        with refused(PyTritonClientInferenceServerError, "missing required input(s) ['B']"):
            client.infer_sample(A)


def futures():
    # 0.7.0 speaks HTTP to whatever URL it is given, so with grpc:// it fails at Triton, too.
    with FuturesModelClient(f"http://{HTTP}", "sum", max_workers=8, init_timeout_s=WAIT_SECONDS_MAX) as client:
        asked = [(i, client.infer_sample(A + i, A)) for i in range(50)]
        for i, future in asked:
            np.testing.assert_array_equal(future.result(WAIT_SECONDS_MAX)["SUM"], 2 * A + i)


def decoupled():
    with DecoupledModelClient(URL, "count", init_timeout_s=WAIT_SECONDS_MAX) as client:
        answers = client.infer_sample(np.array([3], np.int32))
        assert [int(each["I"][0]) for each in answers] == [0, 1, 2]


waits()
infers()
futures()
if GRPC_ONLY:
    decoupled()
