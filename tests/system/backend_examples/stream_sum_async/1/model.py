"""The same from coroutines: one stream for each request, all at the same time, each read with a plain `for`."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.summed(request) for request in requests))

    async def summed(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="squares",
            inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
            requested_output_names=["OUT"],
        )
        total = np.array([0])
        for answer in await asked.async_exec(decoupled=True):
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            if len(answer.output_tensors()) > 0:
                total += pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])
