"""Waits, and says for how long, again and again: requests overlap in one event loop."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*(self._one(request) for request in requests))

    async def _one(self, request):
        sender = request.get_response_sender()
        for wait in pb_utils.get_input_tensor_by_name(request, "WAIT_MS").as_numpy():
            await asyncio.sleep(wait / 1000)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([wait], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
