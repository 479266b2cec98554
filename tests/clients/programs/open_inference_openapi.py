"""The client that is generated from the Open Inference protocol's document."""

from open_inference.openapi.client import InferenceRequest, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError
from steps import UNKNOWN, WRONG_SHAPE, addresses, refused, wait

client = OpenInferenceClient(base_url=f"http://{addresses()[0]}")


def ready():
    try:
        client.check_model_readiness("sum")
    except ApiError:
        return False
    return True


def ask(model, rows):
    shape = [len(rows), len(rows[0])]
    tensors = [{"name": name, "shape": shape, "datatype": "FP32", "data": rows} for name in ("A", "B")]
    return client.model_infer(model, request=InferenceRequest(inputs=tensors))


client.check_server_liveness()
client.check_server_readiness()
wait(ready)
assert client.read_server_metadata().name
assert [each.name for each in client.read_model_metadata("sum").inputs] == ["A", "B"]
answer = ask("sum", [[1, 2], [3, 4]])
assert answer.outputs[0].shape == [2, 2]
assert answer.outputs[0].data.__root__ == [2, 4, 6, 8], answer
with refused(ApiError, UNKNOWN):
    ask("nobody", [[1, 2]])
with refused(ApiError, WRONG_SHAPE):
    ask("sum", [[1, 2, 3]])
