"""A model whose answer, right or wrong, the client chooses with the parameter "mode"."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

GOOD = np.array([1, 2], np.float32)
TEXT = np.array([b"text"], np.object_)


def outputs(first=GOOD, name="OUTPUT0"):
    return [pb_utils.Tensor(name, first), pb_utils.Tensor("OUTPUT1", TEXT)]


class TritonPythonModel:
    def execute(self, requests):
        return getattr(self, self._mode(requests[0]))(requests)

    def _mode(self, request):
        return json.loads(request.parameters() or "{}").get("mode", "good")

    def _all(self, requests, *answer):
        return [pb_utils.InferenceResponse(*answer) for _ in requests]

    def good(self, requests):
        return self._all(requests, outputs())

    def raises(self, requests):
        raise ValueError("the model raised this")

    def raises_key_error(self, requests):
        return {}["no such key"]

    def raises_model_exception(self, requests):
        raise pb_utils.TritonModelException("the model raised a TritonModelException")

    def returns_none(self, requests):
        return None

    def returns_dict(self, requests):
        return {"OUTPUT0": GOOD}

    def returns_too_few(self, requests):
        return []

    def returns_too_many(self, requests):
        return self._all(requests, outputs()) * 2

    def returns_numbers(self, requests):
        return [1 for _ in requests]

    def returns_none_inside(self, requests):
        return [None for _ in requests]

    def no_outputs(self, requests):
        return self._all(requests, [])

    def one_output(self, requests):
        return self._all(requests, outputs()[:1])

    def wrong_name(self, requests):
        return self._all(requests, outputs(name="OUTPUT9"))

    def wrong_type(self, requests):
        return self._all(requests, outputs(GOOD.astype(np.int64)))

    def wrong_shape(self, requests):
        return self._all(requests, outputs(np.zeros((3,), np.float32)))

    def wrong_rank(self, requests):
        return self._all(requests, outputs(np.zeros((1, 2), np.float32)))

    def same_output_twice(self, requests):
        return self._all(requests, outputs() + outputs()[:1])

    def float16_output(self, requests):
        return self._all(requests, outputs(GOOD.astype(np.float16)))

    def not_finite(self, requests):
        return self._all(requests, outputs(np.array([np.nan, np.inf], np.float32)))

    def negative_infinity(self, requests):
        return self._all(requests, outputs(np.array([-np.inf, -0.0], np.float32)))

    def tiny_floats(self, requests):
        return self._all(requests, outputs(np.array([1e-42, 3.4028235e38], np.float32)))

    def tensor_without_name(self, requests):
        return self._all(requests, outputs(name=""))

    def tensor_of_list(self, requests):
        return self._all(requests, [pb_utils.Tensor("OUTPUT0", [1.0, 2.0])])

    def strided_output(self, requests):
        return self._all(requests, outputs(np.arange(4, dtype=np.float32)[::2]))

    def text_of_all_bytes(self, requests):
        return self._all(
            requests, [outputs()[0], pb_utils.Tensor("OUTPUT1", np.array([bytes(range(1, 128)), b""], np.object_))]
        )

    def text_of_str(self, requests):
        return self._all(requests, [outputs()[0], pb_utils.Tensor("OUTPUT1", np.array(["zwölf", "十二"], np.object_))])

    def error_without_code(self, requests):
        return self._all(requests, [], pb_utils.TritonError("no code given"))

    def error_as_text(self, requests):
        return self._all(requests, [], "not a TritonError")

    def error_beside_outputs(self, requests):
        return self._all(requests, outputs(), pb_utils.TritonError("an error beside outputs"))


def _add_error_modes():
    """error_unknown, error_internal, ...: one mode for each code of TritonError."""
    codes = (
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    )
    for code in codes:

        def mode(self, requests, code=code):
            error = pb_utils.TritonError(f"the model says {code}", getattr(pb_utils.TritonError, code))
            return self._all(requests, [], error)

        setattr(TritonPythonModel, f"error_{code.lower()}", mode)


_add_error_modes()
