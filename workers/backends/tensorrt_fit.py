"""An engine beside its configuration: what is filled in, and what cannot both be right.  Triton's rules and texts."""

from tisfast_worker import tensor_completion
from tisfast_worker.failure import Refusal


class FitError(Refusal):
    """The configuration and the plan cannot both be right; the text says why."""


def completed(config, engine):
    """The configuration (a dict, changed in place) with what it leaves open.  Raises FitError.

    A list of tensors that is there gains none, and what its tensors lack is filled in.
    """
    size, most, hint = config.get("max_batch_size", 0), engine.largest_batch(), _batches(config, engine)
    check_batch(config, engine)
    if size == 0 and hint is not False and most > 0:
        size = config["max_batch_size"] = most
    tensor_completion.batch_dynamically(config, size)
    for role, tensors in (("input", engine.inputs), ("output", engine.outputs)):
        tensor_completion.complete_tensors(config, role, tensors, size > 0)
    return config


def check_batch(config, engine):
    """Raises FitError where batches would be larger than the profiles allow."""
    size, most = config.get("max_batch_size", 0), engine.largest_batch()
    if size > most:
        raise FitError(
            f"autofill failed for model '{config.get('name', '')}': configuration specified max-batch {size} but "
            f"TensorRT engine only supports max-batch {most}"
        )


def check_ranges(config, engine):
    """Raises FitError where an input can have no size that one of the profiles takes."""
    said = {item["name"]: item for item in config.get("input", ()) if not item.get("allow_ragged_batch")}
    lead = [-1] if config.get("max_batch_size", 0) > 0 else []
    for each in engine.inputs:
        if each.name in said:
            shape = [*lead, *tensor_completion.said_dims(said[each.name])]
            misfits = [each.misfit(profile, shape) for profile in engine.profiles]
            if all(misfits):
                raise FitError(
                    f"model configuration specified invalid shape for input '{each.name}' for model "
                    f"{config.get('name', '')}. Error details: {misfits[0]}"
                )


def described(config, engine, batched):
    """See ArrayBackend.describe.  Where one of the two sides says any size, the other one's size is taken."""
    found, lead = {}, 1 if batched else 0
    for role, tensors in (("input", engine.inputs), ("output", engine.outputs)):
        said = {item["name"]: tensor_completion.said_dims(item) for item in config.get(role, ())}
        found[role + "s"] = []
        for each in tensors:
            dims, wanted = list(each.dims), said.get(each.name, ())
            if len(wanted) == len(dims) - lead:
                dims[lead:] = [size if -1 in (size, dim) else dim for size, dim in zip(wanted, dims[lead:])]
            found[role + "s"].append((each.name, each.dtype, dims))
    return found


def _batches(config, engine):
    """Whether the dims of the configuration leave out the batch, None where it has none.  Raises FitError."""
    known = {each.name: each for each in (*engine.inputs, *engine.outputs)}
    hints = set()
    for item in (*config.get("input", ()), *config.get("output", ())):
        if item.get("allow_ragged_batch"):
            return True  # of the others some have the batch in the dims of the plan, and some have not
        each = known.get(item.get("name"))
        dims = None if each is None else tensor_completion.said_dims(item)
        if dims:
            hints.add(len(dims) < len(each.dims))
    if len(hints) > 1:
        raise FitError(
            f"unable to autofill for '{config.get('name', '')}', model tensor configurations are contradicting each "
            "other in terms of whether batching is supported: write all dims with the batch, or all without"
        )
    return hints.pop() if hints else None
