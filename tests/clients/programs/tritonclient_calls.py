"""tritonclient's synchronous clients.  Argument: http or grpc."""

import importlib
import queue

import numpy as np
from steps import UNKNOWN, WAIT_SECONDS_MAX, WRONG_SHAPE, addresses, arguments, refused, wait
from tritonclient.utils import InferenceServerException

HTTP = arguments() == ["http"]
api = importlib.import_module(f"tritonclient.{arguments()[0]}")


def tensor(name, values, datatype):
    made = api.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def pair(values):
    return [tensor("A", values, "FP32"), tensor("B", values, "FP32")]


def names(client):
    if HTTP:
        return [each["name"] for each in client.get_model_metadata("sum")["inputs"]]
    return [each.name for each in client.get_model_metadata("sum").inputs]


def stream(client):
    """All numbers of a decoupled model; an error on the same stream ends nothing."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("nobody", [tensor("N", np.array([3], np.int32), "INT32")])
    _, error = answers.get(timeout=WAIT_SECONDS_MAX)
    assert UNKNOWN in str(error), error
    client.async_stream_infer("count", [tensor("N", np.array([3], np.int32), "INT32")])
    results = [answers.get(timeout=WAIT_SECONDS_MAX) for _ in range(3)]
    client.stop_stream()
    assert [int(result.as_numpy("I")[0]) for result, _ in results] == [0, 1, 2], results


def main():
    client = api.InferenceServerClient(addresses()[0 if HTTP else 1])
    assert client.is_server_live()
    assert client.is_server_ready()
    wait(lambda: client.is_model_ready("sum"))
    assert names(client) == ["A", "B"]
    values = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(client.infer("sum", pair(values)).as_numpy("SUM"), values + values)
    text = client.infer("upper", [tensor("TEXT", np.array([b"a", "\u00e9".encode()], object).reshape(2, 1), "BYTES")])
    assert text.as_numpy("UPPER").reshape(-1).tolist() == [b"A", "\u00c9".encode()]
    with refused(InferenceServerException, UNKNOWN):
        client.infer("nobody", pair(values))
    with refused(InferenceServerException, WRONG_SHAPE):
        client.infer("sum", pair(np.zeros((1, 3), np.float32)))
    if not HTTP:
        stream(client)
    client.close()


main()
