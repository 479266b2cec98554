"""Outputs that differ from the configuration: served as they are and logged once for each output, or refused.

Triton's Python backend looks at no answer: it sends what it was given, and drops outputs that the configuration does
not have.  `strict_outputs` of the load message makes each difference the error of its request.
"""

import os

from tisfast_worker import dtypes, limits
from tisfast_worker.serving_context import current

_STRICT = "--strict-outputs, or the model's parameter STRICT_OUTPUTS, makes such answers errors"


class AnswerError(Exception):
    """The model's response cannot be served; the text goes to the client."""


class OutputDifferences:
    """The differences of one instance.  Each is logged once for each output."""

    def __init__(self, model):
        """`model`: the Model."""
        self._model, self._strict = model, model.strict_outputs
        self._told = set()  # names of outputs

    def of_tensor(self, spec, code, shape, batch):
        """An output's data type, or its shape: what the model returned for a request of this batch size."""
        model = self._model
        wanted = spec.dims if spec.reshape is None else spec.reshape
        wanted = (batch, *wanted) if model.batched else tuple(wanted)
        if self._strict and code != spec.code:
            raise AnswerError(
                f"model '{model.name}' returned output '{spec.name}' with data type {dtypes.wire_name(code)}, its "
                f"config says {dtypes.wire_name(spec.code)}"
            )
        if self._strict:
            raise AnswerError(
                "unexpected shape for output '{}' for model '{}'. Expected {}, got {}{}".format(
                    *(spec.name, model.name, dtypes.dims_text(wanted), dtypes.dims_text(shape)),
                    ": the first dimension is the request's batch" if model.batched else "",
                )
            )
        if not self._first(spec.name):
            return
        said = f"{dtypes.wire_name(spec.code)} {dtypes.dims_text(wanted)}"
        if model.batched:
            said += f" for a request of batch size {batch}"
        self._tell(
            spec.name,
            f"model '{model.name}' returned output '{spec.name}' as {dtypes.wire_name(code)} "
            f"{dtypes.dims_text(shape)}, but its configuration says {said}",
            "it is sent as it was returned, as Triton sends it",
            _cure(spec, code, _cut_batch(shape, model.batched)),
        )

    def of_unknown(self, name):
        """An output that the configuration does not have."""
        known = ", ".join(f"'{spec.name}'" for spec in self._model.outputs)
        text = f"model '{self._model.name}' returned output '{name}', which its config does not have; it has {known}"
        if self._strict:
            raise AnswerError(text)
        if self._first(name):
            cure = "correct the name, or add the output to config.pbtxt"
            self._tell(name, text, "it is dropped, as Triton drops it", cure)

    def of_repeated(self, name):
        """An output that is in one response twice."""
        text = f"model '{self._model.name}' returned output '{name}' twice in one response"
        if self._strict:
            raise AnswerError(text)
        if self._first(name):
            self._tell(name, text, "both are sent, as Triton sends them", "return each output once")

    def of_missing(self, tensors, requested):
        """Outputs that were asked for, and are not among the tensors."""
        if self._model.decoupled:
            return  # responses of a stream may have different outputs
        given = {tensor._name for tensor in tensors}
        for spec in self._model.outputs:
            if not requested >> spec.index & 1 or spec.name in given:
                continue
            text = f"model '{self._model.name}' did not return output '{spec.name}', which its config has"
            if self._strict:
                raise AnswerError(text)
            if self._first(spec.name):
                self._tell(
                    spec.name,
                    text,
                    "the answer goes without it, as Triton's does",
                    "return it, or take it out of config.pbtxt",
                )

    def _first(self, name):
        """Whether this output was not logged yet."""
        name = name[: limits.DIFFERENCE_NAME_CHARS_MAX]
        if name in self._told or len(self._told) >= limits.DIFFERENCES_TOLD_MAX:
            return False
        self._told.add(name)
        return True

    def _tell(self, name, what, so, cure):
        text = f"{what}: {so}. To mend it: {cure}. {_STRICT}. This is said once for this output"
        once = f"output {name[: limits.DIFFERENCE_NAME_CHARS_MAX]}"
        current().log("WARN", text, os.path.basename(self._model.file), 0, once=once)


def _cut_batch(shape, batched):
    return shape[1:] if batched else shape


def _cure(spec, code, dims):
    cures = []
    if code != spec.code:
        name = dtypes.TYPES[spec.code][1][5:].lower().replace("fp", "float")
        convert = "" if spec.code >= dtypes.BYTES else f"convert the array with astype('{name}'), or "
        cures.append(f"{convert}write data_type: {dtypes.TYPES[code][1]} in config.pbtxt")
    wanted = spec.dims if spec.reshape is None else spec.reshape
    if len(dims) != len(wanted) or any(w not in (-1, s) for w, s in zip(wanted, dims)):
        given = dtypes.dims_text(dims)
        cures.append(f"reshape the array, or write the output's dims as they are ({given}, -1 for any)")
    elif code == spec.code:
        cures.append("return as many rows as the request has")
    return "; ".join(cures)
