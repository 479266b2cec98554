"""The client that is generated from the Open Inference protocol's file of gRPC."""

import grpc
from open_inference.grpc.protocol import (
    ModelInferRequest,
    ModelMetadataRequest,
    ModelReadyRequest,
    ServerLiveRequest,
    ServerReadyRequest,
)
from open_inference.grpc.service import GRPCInferenceServiceStub
from steps import UNKNOWN, WRONG_SHAPE, addresses, refused, wait


def ask(model, rows):
    flat = [value for row in rows for value in row]
    tensor = {"datatype": "FP32", "shape": [len(rows), len(rows[0])], "contents": {"fp32_contents": flat}}
    inputs = [{"name": name, **tensor} for name in ("A", "B")]
    return client.ModelInfer(ModelInferRequest(model_name=model, inputs=inputs))


with grpc.insecure_channel(addresses()[1]) as channel:
    client = GRPCInferenceServiceStub(channel)
    assert client.ServerLive(ServerLiveRequest()).live
    assert client.ServerReady(ServerReadyRequest()).ready
    wait(lambda: client.ModelReady(ModelReadyRequest(name="sum")).ready)
    assert [each.name for each in client.ModelMetadata(ModelMetadataRequest(name="sum")).inputs] == ["A", "B"]
    answer = ask("sum", [[1, 2], [3, 4]])
    assert list(answer.outputs[0].shape) == [2, 2], answer
    for model, rows, text in (("nobody", [[1, 2]], UNKNOWN), ("sum", [[1, 2, 3]], WRONG_SHAPE)):
        with refused(grpc.RpcError, text):
            ask(model, rows)
