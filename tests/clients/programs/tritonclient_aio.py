"""tritonclient's asyncio clients.  Argument: http or grpc."""

import asyncio
import importlib

import numpy as np
from steps import LOOK_SECONDS, UNKNOWN, WAIT_SECONDS_MAX, addresses, arguments, refused, waiting
from tritonclient.utils import InferenceServerException

HTTP = arguments() == ["http"]
api = importlib.import_module(f"tritonclient.{arguments()[0]}.aio")


def tensor(name, values, datatype):
    made = api.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def pair(values):
    return [tensor("A", values, "FP32"), tensor("B", values, "FP32")]


async def ready(client):
    while not await client.is_model_ready("sum"):
        await asyncio.sleep(LOOK_SECONDS)


async def numbers(client):
    async def requests():
        yield {"model_name": "count", "inputs": [tensor("N", np.array([3], np.int32), "INT32")]}

    return [int(result.as_numpy("I")[0]) async for result, _ in client.stream_infer(requests())]


async def main():
    async with api.InferenceServerClient(addresses()[0 if HTTP else 1]) as client:
        assert await client.is_model_ready("sum") is False
        waiting()
        await asyncio.wait_for(ready(client), WAIT_SECONDS_MAX)
        metadata = await client.get_model_metadata("sum")
        assert (metadata["name"] if HTTP else metadata.name) == "sum"
        values = [np.full((1, 2), i, np.float32) for i in range(50)]
        results = await asyncio.gather(*(client.infer("sum", pair(each)) for each in values))
        for each, result in zip(values, results):  # noqa: B905 - Python 3.8 has no strict
            np.testing.assert_array_equal(result.as_numpy("SUM"), 2 * each)
        with refused(InferenceServerException, UNKNOWN):
            await client.infer("nobody", pair(values[0]))
        if not HTTP:
            assert await numbers(client) == [0, 1, 2]


asyncio.run(main())
