"""Asks two models at the same time, and answers with a part of each."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            inputs = [pb_utils.get_input_tensor_by_name(request, name) for name in ("LEFT", "RIGHT")]
            waiting = [
                pb_utils.InferenceRequest(
                    model_name=name, requested_output_names=["SUM", "DIFFERENCE"], inputs=inputs
                ).async_exec()
                for name in ("pair", "kinds")
            ]
            answers = await asyncio.gather(*waiting)
            for answer in answers:
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
            total = pb_utils.get_output_tensor_by_name(answers[0], "SUM")
            difference = pb_utils.get_output_tensor_by_name(answers[1], "DIFFERENCE")
            responses.append(pb_utils.InferenceResponse([total, difference]))
        return responses
