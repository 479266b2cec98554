"""Sizes beside the batch that differ between the samples: they stay open in what PyTorch exports.

Layer 5 (convert).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tisfast.convert.references import Array
from tisfast.convert.samples import Case
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

BATCH: Final = "batch"
FLOATS: Final = ("FP", "BF")
"""Beginnings of datatypes."""


class FixedSize(BadRequest):
    """An exporter fixes a size that is to stay open."""


def open_places(tensor: Tensor, signature: Signature) -> list[int]:
    """Dimensions of any size, without the batch."""
    return [at for at, dim in enumerate(tensor.dims) if dim == -1 and not (at == 0 and signature.batches)]


def example_of(cases: Sequence[Case], signature: Signature) -> dict[str, Array]:
    """The inputs that an exporter sees: where sizes are open those of the most different sizes, and the largest.

    An exporter takes sizes that are equal by chance for one, and a size of 1 for a constant.
    """

    def told(case: Case) -> tuple[int, int]:
        sizes = [case.feeds[each.name].shape[at] for each in signature.inputs for at in open_places(each, signature)]
        return len(set(sizes)), sum(sizes)

    return max(cases, key=told).feeds


def shapes_of(torch: Any, signature: Signature, batch: Any) -> dict[str, dict[int, Any]] | None:
    """What torch.export must keep open, by input; None: nothing.  batch: its Dim, None where there is none."""
    found: dict[str, dict[int, Any]] = {}
    for each in signature.inputs:
        found[each.name] = dict.fromkeys(open_places(each, signature), torch.export.Dim.AUTO)
        if batch is not None:
            found[each.name][0] = batch
    return found if any(found.values()) else None


def axes_of(signature: Signature) -> dict[str, dict[int, str]] | None:
    """The same for the older exporter to ONNX, of inputs and outputs."""
    found: dict[str, dict[int, str]] = {}
    for each in (*signature.inputs, *signature.outputs):
        axes = {at: f"{each.name}_{at}" for at in open_places(each, signature)}
        if signature.batches:
            axes[0] = BATCH
        if axes:
            found[each.name] = axes
    return found or None


def check_program(program: Any, signature: Signature, cases: Sequence[Case]) -> None:
    """Raises FixedSize where a program of torch.export has a size of its own in place of an open one."""
    nodes = {node.name: node for node in program.graph.nodes}
    told = program.graph_signature
    roles = (
        ("input", [(each, each.name) for each in signature.inputs]),
        ("output", list(zip(signature.outputs, told.user_outputs, strict=False))),
    )
    for role, tensors in roles:
        for tensor, name in tensors:
            shape = _shape(nodes, name)
            for at in open_places(tensor, signature):
                size = _known(shape[at]) if at < len(shape) else None
                if size is not None:
                    raise FixedSize(_fixed(role, tensor.name, at, size, cases))


def _shape(nodes: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Of a program's tensor; empty where it is none."""
    return getattr(nodes[name].meta.get("val"), "shape", ()) if name in nodes else ()


def _known(size: Any) -> int | None:
    """A size of a program's tensor, None where it is open; a fixed one may still be a symbol."""
    return size if isinstance(size, int) else size.node.maybe_as_int()


def _fixed(role: str, name: str, at: int, size: int, cases: Sequence[Case]) -> str:
    sizes = sorted({case.feeds[name].shape[at] for case in cases}) if role == "input" else []
    others = f"the samples have {_joined([str(each) for each in sizes])} there" if sizes else "it has several sizes"
    return (
        f"torch.export fixes dimension {at} of {role} '{name}' at {size} in this module, and {others}: it writes out "
        "loops over a size, as those of an LSTM, and what asks for a size's value, for the example that it sees"
    )


def violated(error: Exception) -> FixedSize | None:
    """What torch.export says of a batch that it does not keep open, as one sentence; None for anything else.

    It is the one size that is demanded; others are looked at when the program is made.
    """
    lines = [each.strip(" -") for each in str(error).splitlines()]
    if not lines or not lines[0].startswith("Constraints violated"):
        return None
    why = next((each for each in lines[1:] if each), lines[0]).split(". ")[0].rstrip(".")
    return FixedSize(
        f"torch.export does not keep the batch open in this module ({why}): where the first dimension is none, but "
        "steps of time or the like, say --no-batch"
    )


def as_exported(signature: Signature, program: Any) -> Signature:
    """With all sizes open that are so in a program of torch.export, whatever the samples have there."""
    nodes = {node.name: node for node in program.graph.nodes}

    def opened(tensor: Tensor, name: str) -> Tensor:
        shape = _shape(nodes, name)
        if len(shape) != len(tensor.dims):
            return tensor
        dims = zip(tensor.dims, shape, strict=True)
        return replace(tensor, dims=tuple(-1 if _known(size) is None else dim for dim, size in dims))

    names = [str(each) for each in program.graph_signature.user_outputs]
    outputs = tuple(opened(each, name) for each, name in zip(signature.outputs, names, strict=False))
    return replace(
        signature,
        inputs=tuple(opened(each, each.name) for each in signature.inputs),
        outputs=outputs + signature.outputs[len(outputs) :],
    )


def one_shape(signature: Signature) -> str:
    """That samples of one shape fix the sizes of what is made: one sentence, or "".

    Whoever gives samples of several sizes knows of it, and what stands in a row of floats are mostly features.
    """
    if any(open_places(each, signature) for each in signature.inputs):
        return ""
    batch = int(signature.batches)
    told = [
        f"'{each.name}' {list(each.dims)}"
        for each in signature.inputs
        if len(each.dims) > batch and not (len(each.dims) == batch + 1 and each.datatype.startswith(FLOATS))
    ]
    if not told:
        return ""
    beside = " beside the batch" if batch else ""
    return (
        f"all samples have the same sizes{beside}, and what is made takes these alone: {_joined(told)}; if the source "
        "takes others, give samples of several sizes to keep them open"
    )


def _joined(texts: Sequence[str]) -> str:
    return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else "".join(texts)
