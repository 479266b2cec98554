"""As many responses as the number says, from an asynchronous execute: batches overlap in one thread."""

import asyncio

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """While one request waits, the others of its batch and those of later batches go on."""

    async def execute(self, requests):
        """Answer all requests of the batch side by side."""
        await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request):
        sender = request.get_response_sender()
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        for _ in range(int(value.flat[0])):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
            await asyncio.sleep(0)  # others' turn
        sender.send(flags=FINAL)
