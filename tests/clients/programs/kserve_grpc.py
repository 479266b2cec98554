"""KServe's SDK over gRPC."""

import asyncio

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
from steps import LOOK_SECONDS, UNKNOWN, WAIT_SECONDS_MAX, WRONG_SHAPE, addresses, refused, waiting


def request(model, values):
    tensors = [InferInput(name, list(values.shape), "FP32") for name in ("A", "B")]
    for each in tensors:
        each.set_data_from_numpy(values)
    return InferRequest(model_name=model, infer_inputs=tensors)


async def ready(client):
    while not await client.is_model_ready("sum"):
        await asyncio.sleep(LOOK_SECONDS)


async def main():
    client = InferenceGRPCClient(addresses()[1], timeout=WAIT_SECONDS_MAX)
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready("sum") is False
    waiting()
    await asyncio.wait_for(ready(client), WAIT_SECONDS_MAX)
    values = np.array([[1, 2], [3, 4]], np.float32)
    answer = await client.infer(request("sum", values))
    np.testing.assert_array_equal(answer.outputs[0].as_numpy(), 2 * values)
    with refused(grpc.RpcError, UNKNOWN):
        await client.infer(request("nobody", values))
    with refused(grpc.RpcError, WRONG_SHAPE):
        await client.infer(request("sum", np.zeros((1, 3), np.float32)))
    await client.close()


asyncio.run(main())
