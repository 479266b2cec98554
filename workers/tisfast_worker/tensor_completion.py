"""What a configuration leaves open of its tensors, by rules that several of Triton's backends share.

They complete tensors that are there, where file_signature.completed leaves a list that is there as it is.
"""

from tisfast_worker import dtypes

_SCHEDULERS = frozenset({"dynamic_batching", "sequence_batching", "ensemble_scheduling"})
_CONFIG_NAMES = {name: config for name, config, _, _ in dtypes.TYPES.values()}


def batch_dynamically(config, size):
    """A dynamic batcher, where batches may be larger than one and there is no scheduler."""
    if size > 1 and not config.keys() & _SCHEDULERS:
        config["dynamic_batching"] = {}


def complete_tensors(config, role, tensors, batched, adds=False):
    """Fill in what the tensors of one role lack; all of them where there are none.

    `tensors`: name, dtype and dims each, of the model's file.  adds: those that a list leaves out are added to it.
    """
    filled = {each.name: entry(each, batched) for each in tensors}
    items = list(config.get(role, ()))
    if adds or not items:
        known = {item.get("name") for item in items} | _made_names(config)
        items += [{"name": name} for name in filled if name not in known]
    for item in items:
        _fill(item, filled.get(item.get("name")))
    config[role] = items


def entry(tensor, batched):
    """A tensor of a model's file as a configuration has it.  `tensor`: name, KServe's dtype and dims."""
    dims = list(tensor.dims[1:] if batched else tensor.dims)
    found = {"name": tensor.name, "data_type": _CONFIG_NAMES.get(tensor.dtype, tensor.dtype), "dims": dims or [1]}
    if batched and not dims:
        found["reshape"] = {"shape": []}
    return found


def said_dims(item):
    """The dims that the model sees of a tensor of the configuration, [] where it says none."""
    return [int(dim) for dim in (item.get("reshape") or item).get("shape", item.get("dims", []))]


def _made_names(config):
    """Tensors that clients do not send: controls and states of sequences, and batch inputs."""
    names = {name for item in config.get("batch_input", ()) for name in item["target_name"]}
    sequences = config.get("sequence_batching", {})
    names.update(item["name"] for item in sequences.get("control_input", ()))
    for state in sequences.get("state", ()):
        names.update((state["input_name"], state["output_name"]))
    return names


def _fill(item, filled):
    if filled is None:
        return  # the check names it
    if item.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
        item["data_type"] = filled["data_type"]
    if not item.get("dims"):
        item.update({key: filled[key] for key in ("dims", "reshape") if key in filled})
