"""The free functions of triton_python_backend_utils."""

import struct

from tisfast_worker import arguments, dtypes, limits
from tisfast_worker.errors import TritonModelException
from tisfast_worker.serving_context import FORKED, current


def get_input_tensor_by_name(inference_request, name):
    """The request's input Tensor called `name`, or None."""
    return inference_request.find(name)


def get_output_tensor_by_name(inference_response, name):
    """The response's output Tensor called `name`, or None."""
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


def get_input_config_by_name(model_config, name):
    """The properties (a dict) of the model's input called `name`, or None."""
    return _named(model_config.get("input", ()), name)


def get_output_config_by_name(model_config, name):
    """The properties (a dict) of the model's output called `name`, or None."""
    return _named(model_config.get("output", ()), name)


def _named(tensors, name):
    for properties in tensors:
        if properties["name"] == name:
            return properties
    return None


def using_decoupled_model_transaction_policy(model_config):
    """Whether the model's configuration (a dict) says decoupled."""
    return model_config.get("model_transaction_policy", {}).get("decoupled", False)


def triton_to_numpy_type(data_type):
    """The numpy type of a DataType number, None for BF16 and unknown numbers."""
    return _numpy_types().get(data_type)


def numpy_to_triton_type(data_type):
    """The DataType number of a numpy type, None when there is none."""
    import numpy  # noqa: PLC0415

    dtype = numpy.dtype(data_type)
    return dtypes.CODE_BY_CHAR.get(dtype.char) if dtype.isnative else None


def triton_string_to_numpy(triton_type_string):
    """The numpy type of a ModelConfig name such as TYPE_FP32.  Raises KeyError for others."""
    return triton_strings()[triton_type_string]


def triton_strings():
    """{ModelConfig name: numpy type}: pb_utils.TRITON_STRING_TO_NUMPY."""
    types = _numpy_types()
    return {entry[1]: bool if code == 1 else types[code] for code, entry in dtypes.TYPES.items() if code in types}


def _numpy_types():
    import numpy  # noqa: PLC0415

    return {code: numpy.dtype(entry[3]).type for code, entry in dtypes.TYPES.items() if entry[3]}


def serialize_byte_tensor(input_tensor):
    """An object or bytes array in KServe's form: u32 length and payload of each element; None for other arrays."""
    if input_tensor.dtype.char not in "OS":
        return None
    pack = struct.Struct("<I").pack
    parts = []
    for item in input_tensor.ravel().tolist():
        # Only bytes stay as they are; all else is text, as in Triton.
        raw = item if item.__class__ is bytes else str(item).encode()
        parts.append(pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor):
    """The elements of KServe's form, a flat object array of bytes.  Raises TritonModelException when cut short."""
    import numpy  # noqa: PLC0415

    items = []
    at = 0
    while at < len(encoded_tensor):
        end = at + 4
        if end <= len(encoded_tensor):
            end += struct.unpack_from("<I", encoded_tensor, at)[0]
        if end > len(encoded_tensor):
            raise TritonModelException(f"BYTES tensor ends at byte {len(encoded_tensor)}, inside an element")
        items.append(bytes(encoded_tensor[at + 4 : end]))
        at = end
    flat = numpy.empty(len(items), dtype=object)
    flat[:] = items
    return flat


def get_model_dir():
    """The folder of the model version being served, "" outside the server."""
    return current().model_dir


def load_model(model_name, config="", files=None):
    """Load a model, or load it anew, and wait until it serves.  Raises TritonModelException when it cannot be.

    config: a configuration in JSON in place of the file's; files: bytes by "file:<version>/<name>", in place of the
    model's folder.
    """
    model_name = arguments.text("load_model()", "model_name", model_name)
    config = arguments.text("load_model()", "config", config)
    if not isinstance(files, (dict, type(None))):
        raise arguments.wrong("load_model()", "files", "a dict of paths and bytes", files)
    given = {path: bytes(content) for path, content in (files or {}).items()}
    nbytes = len(config) + sum(len(path) + len(content) for path, content in given.items())
    if nbytes > limits.LOAD_BYTES_MAX:
        raise TritonModelException(
            f"Failed to load model: configuration and files of {nbytes} bytes; {limits.LOAD_BYTES_MAX} is the limit "
            "here, so write them into the model repository"
        )
    message = {"do": "load", "name": model_name, "config": config, "files": given}
    _ask_server("load model", message, limits.LOAD_ANSWER_SECONDS_MAX)


def unload_model(model_name, unload_dependents=False):
    """Unload a model.  Raises TritonModelException when the server does not."""
    message = {
        "do": "unload",
        "name": arguments.text("unload_model()", "model_name", model_name),
        "dependents": arguments.truth("unload_model()", "unload_dependents", unload_dependents),
    }
    _ask_server("unload model", message, limits.LOAD_ANSWER_SECONDS_MAX)


def is_model_ready(model_name, model_version=""):
    """Whether a model can be asked; version "" is the newest.  Raises TritonModelException outside of `execute`."""
    model_name = arguments.text("is_model_ready()", "model_name", model_name)
    model_version = arguments.text("is_model_ready()", "model_version", model_version)
    if model_version and not (model_version.isascii() and model_version.isdecimal()):
        _refused(
            "check model readiness",
            f"failed to get model version from specified version string '{model_version}' (details: stol), version "
            "should be an integral value > 0",
        )
    message = {"do": "ready", "name": model_name, "version": model_version}
    return _ask_server("check model readiness", message)["ready"]


def _ask_server(what, message, seconds=limits.ANSWER_SECONDS_MAX):
    error = "Server not ready"  # Triton's word for what is not the time of `execute`
    serving = current()
    if serving.forked:
        error = FORKED.format(serving.instance)
    if serving.ask is not None:
        answer = serving.ask(dict(message, t="model"), seconds)
        error = answer.get("error")
    if error is not None:
        _refused(what, error)
    return answer


def _refused(what, error):
    raise TritonModelException(
        f"Failed to {what}: Failed to process the request for model '{current().instance}', message: {error}"
    )
