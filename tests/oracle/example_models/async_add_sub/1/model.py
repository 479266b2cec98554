"""Sum and difference, each request in a coroutine of its own."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self._one(request) for request in requests))

    async def _one(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
        await asyncio.sleep(0.001)
        if a[0, 0] < 0:
            error = pb_utils.TritonError("a negative A", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse([], error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFFERENCE", a - b)])
