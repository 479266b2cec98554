"""A TensorFlow model beside its configuration: what is filled in, and what cannot be.  Triton's rules and texts."""

from tisfast_worker import dtypes, file_signature, tensor_completion
from tisfast_worker.failure import Refusal


class FitError(Refusal):
    """The configuration cannot be completed, or asks for what no request can carry; the text says why."""


def names_of(config, role):
    """All tensors that the configuration means to be given to the model, or by it."""
    names = [item["name"] for item in config.get(role, ()) if "name" in item]
    sequences = config.get("sequence_batching", {})
    names += [state[f"{role}_name"] for state in sequences.get("state", ())]
    if role == "input":
        names += [name for item in config.get("batch_input", ()) for name in item["target_name"]]
        names += [item["name"] for item in sequences.get("control_input", ())]
    return list(dict.fromkeys(names))


def completed(config, tensors, default_max_batch_size):
    """The configuration (a dict, changed in place) with what it leaves open.  `tensors`: GraphTensors by role.

    Raises FitError.
    """
    name, size = config.get("name", ""), config.get("max_batch_size", 0)
    every = [*tensors["input"], *tensors["output"]]
    can = all(each.dims is None or each.dims[:1] == [-1] for each in every)
    if size > 0 and not can:
        rigid = next(each for each in every if each.dims is not None and each.dims[:1] != [-1])
        raise FitError(
            f"unable to autofill for '{name}', configuration specified max-batch {size} but model signature does not "
            f"support batching: the first dimension of '{rigid.name}' is not free in {dtypes.dims_text(rigid.dims)}"
        )
    if size == 0 and can and _hints_at_batches(config, tensors):
        size = config["max_batch_size"] = default_max_batch_size
    tensor_completion.batch_dynamically(config, size)
    strange = set(names_of(config, "input")) - {each.name for each in tensors["input"]}
    _refuse_open(config, tensors, bool(strange))
    said = file_signature.FileSignature(described(config, tensors, size > 0))
    # Beside a wrong name, the one that is left out is most likely the one that was meant: the check tells.
    tensor_completion.complete_tensors(config, "input", said.inputs, size > 0, adds=not strange)
    tensor_completion.complete_tensors(config, "output", said.outputs, size > 0)
    return config


def described(config, tensors, batched):
    """See ArrayBackend.describe.  Dims that the model leaves open altogether are those of the configuration."""
    found = {}
    for role in ("input", "output"):
        said = {item["name"]: tensor_completion.said_dims(item) for item in config.get(role, ()) if "name" in item}
        ragged = {item["name"] for item in config.get(role, ()) if item.get("allow_ragged_batch")}
        lead, found[role + "s"] = [-1] if batched else [], []
        for each in _sendable(config, role, tensors[role]):
            dims = each.dims
            if dims is None:
                dims = [-1] if each.name in ragged else [*lead, *said.get(each.name, [1])]
            found[role + "s"].append((each.name, each.dtype, dims))
    return found


def _hints_at_batches(config, tensors):
    """Whether the dims of the configuration leave out the batch; where it has no tensors, it takes batches."""
    if not config.get("input") and not config.get("output"):
        return True
    weak, hint = False, None
    for role in ("input", "output"):
        known = {each.name: each for each in tensors[role]}
        for item in config.get(role, ()):
            if item.get("allow_ragged_batch"):
                return True
            each = known.get(item.get("name"))
            if each is None or not each.dims:
                continue
            dims = tensor_completion.said_dims(item)
            if not dims and "reshape" not in item:
                weak = True
                continue
            batches = len(dims) == len(each.dims) - 1
            if hint not in (None, batches):
                raise FitError(
                    f"unable to autofill for '{config.get('name', '')}', model tensor configurations are contradicting "
                    "each other in terms of whether batching is supported: write all dims with the batch, or all "
                    "without"
                )
            hint = batches
    return weak if hint is None else hint


def _sendable(config, role, tensors):
    """Those that requests and answers can carry.  Outputs that the configuration leaves out may be others.

    Raises FitError.
    """
    wanted = names_of(config, role)
    found = []
    for each in tensors:
        if each.can_be_sent:
            found.append(each)
        elif role == "input" or not config.get(role) or each.name in wanted:
            raise FitError(
                f"unsupported datatype '{each.dtype}' for tensor '{each.name}' for model '{config.get('name', '')}': "
                "no request can carry it; cast it in the model"
                + (", or write the outputs that are wanted without it" if role == "output" else "")
            )
    return found


def _refuse_open(config, tensors, strange):
    """Raises FitError where dims are to be filled in that the model does not tell.  strange: of wrong names."""
    for role in ("input", "output"):
        items = {item.get("name"): item for item in config.get(role, ())}
        made = set(names_of(config, role)) - set(items)
        for each in tensors[role]:
            item = items.get(each.name)
            left = item is None and bool(strange if role == "input" else items)  # and not completed
            if each.dims is not None or each.name in made or left:
                continue
            if item is None or not (tensor_completion.said_dims(item) or "reshape" in item):
                raise FitError(
                    f"Unable to autofill for '{config.get('name', '')}': the rank of model tensor '{each.name}' is 0 "
                    "which is not supported: its shape is open in the model; write it with its dims"
                )
