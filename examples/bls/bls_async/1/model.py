"""The same as bls_sync, with the two ways at the same time."""

import asyncio

import triton_python_backend_utils as pb_utils


async def call(output, first, second):
    """One output of bls_add_sub.  Raises TritonModelException when it answers with an error."""
    response = await pb_utils.InferenceRequest(
        model_name="bls_add_sub",
        requested_output_names=[output],
        inputs=[pb_utils.Tensor("INPUT0", first), pb_utils.Tensor("INPUT1", second)],
    ).async_exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, output).as_numpy()


async def there_and_back(way, back, first, second):
    """`way` and then `back`."""
    return await call(back, await call(way, first, second), second)


class TritonPythonModel:
    """Both at once."""

    async def execute(self, requests):
        """One answer for each request, in order."""
        return await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request):
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        there, back = await asyncio.gather(
            there_and_back("OUTPUT0", "OUTPUT1", first, second), there_and_back("OUTPUT1", "OUTPUT0", first, second)
        )
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", there), pb_utils.Tensor("OUTPUT1", back)])
