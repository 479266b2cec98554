"""KServe's SDK over HTTP."""

import asyncio

import numpy as np
from httpx import HTTPStatusError
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from steps import LOOK_SECONDS, WAIT_SECONDS_MAX, addresses, refused, waiting

URL = f"http://{addresses()[0]}"


def request(model, values):
    tensors = [InferInput(name, list(values.shape), "FP32") for name in ("A", "B")]
    for each in tensors:
        each.set_data_from_numpy(values, binary_data=False)
    return InferRequest(model_name=model, infer_inputs=tensors)


async def ready(client):
    while not await client.is_model_ready(URL, "sum"):
        await asyncio.sleep(LOOK_SECONDS)


async def main():
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=1, timeout=WAIT_SECONDS_MAX))
    assert await client.is_server_live(URL)
    assert await client.is_server_ready(URL)
    assert await client.is_model_ready(URL, "sum") is False
    waiting()
    await asyncio.wait_for(ready(client), WAIT_SECONDS_MAX)
    values = np.array([[1, 2], [3, 4]], np.float32)
    answer = await client.infer(URL, request("sum", values), model_name="sum")
    np.testing.assert_array_equal(answer.outputs[0].as_numpy(), 2 * values)
    with refused(HTTPStatusError, "404"):
        await client.infer(URL, request("nobody", values), model_name="nobody")
    with refused(HTTPStatusError, "400"):
        await client.infer(URL, request("sum", np.zeros((1, 3), np.float32)), model_name="sum")


asyncio.run(main())
