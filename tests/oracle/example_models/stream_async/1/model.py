"""Answers when so many requests have begun as its first number says, with each of its numbers: requests overlap in one
event loop."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.begun, self.more = 0, asyncio.Event()

    async def execute(self, requests):
        await asyncio.gather(*(self._one(request) for request in requests))

    async def _one(self, request):
        sender = request.get_response_sender()
        numbers = pb_utils.get_input_tensor_by_name(request, "WAIT_FOR").as_numpy()
        self.begun += 1
        self.more.set()
        while self.begun < numbers[0]:
            self.more.clear()
            await self.more.wait()
        for number in numbers:
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
