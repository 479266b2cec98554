"""Names of values in graphs of ONNX with their subgraphs (If, Loop, Scan).

Layer 5 (convert).  A name of a graph is known in its subgraphs, unless they have a value of that name themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tisfast.errors import BadRequest


def rename_outputs(graph: Any, names: Sequence[str]) -> None:
    """Give the first outputs these names, in their order, and drop others.

    Values that have one of the names already get another one.  names: of more than there are, the last are of none.
    Raises BadRequest where an input has such a name.
    """
    del graph.output[len(names) :]
    old = [each.name for each in graph.output]
    inputs = {each.name for each in graph.input}
    if found := sorted(inputs & {*old, *names}):
        raise BadRequest(f"the graph would have an input and an output of the name '{found[0]}': rename the sample")
    _make_unique(graph, set(names), {*_all_names(graph), *names})  # so that nothing else has one of them
    _rename(graph, dict(zip([each.name for each in graph.output], names, strict=False)))


def with_unique_names(graph: Any) -> None:
    """Rename values of subgraphs whose name another graph has, too: some transformations take both for one."""
    _make_unique(graph, set(), _all_names(graph))


def subgraphs(nodes: Iterable[Any]) -> Iterator[Any]:
    """Those of these nodes, and not those of the subgraphs again."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


# ---- parts


def _make_unique(graph: Any, seen: set[str], taken: set[str]) -> None:
    """Values whose name is seen get one that is not taken."""
    local = _defined(graph)
    changed = {each: _fresh(each, taken) for each in local if each in seen}
    _rename(graph, changed)
    seen.update(changed.get(each, each) for each in local)
    for each in subgraphs(graph.node):
        _make_unique(each, seen, taken)


def _fresh(name: str, taken: set[str]) -> str:
    """One that nothing has."""
    at = 1
    while (found := f"{name}_{at}") in taken:  # as many steps as there are names at most
        at += 1
    taken.add(found)
    return found


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """All at once, so that two values may change names.  names: new ones by old ones."""
    if not names:
        return
    sparse = [each.values for each in graph.sparse_initializer]
    for each in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
        each.name = names.get(each.name, each.name)
    for each in graph.quantization_annotation:
        each.tensor_name = names.get(each.tensor_name, each.tensor_name)
    for node in graph.node:
        for role in (node.input, node.output):
            role[:] = [names.get(each, each) for each in role]
        for each in subgraphs([node]):
            own = _defined(each)
            _rename(each, {old: new for old, new in names.items() if old not in own})


def _defined(graph: Any) -> list[str]:
    """Names of a graph's own values, in their order; "" is an output that is left out."""
    values = (*graph.input, *graph.initializer, *(each.values for each in graph.sparse_initializer))
    outputs = (each for node in graph.node for each in node.output if each)
    return list(dict.fromkeys((*(each.name for each in values), *outputs)))


def _all_names(graph: Any) -> set[str]:
    found = {*_defined(graph), *(each for node in graph.node for each in node.input)}
    for each in subgraphs(graph.node):
        found |= _all_names(each)
    return found
