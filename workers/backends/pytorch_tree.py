"""Nested arguments and results as flat lists, with Triton's names for their places.

ARGS[0][key], KWARGS[name], RESULT[1].
"""


def places_of(spec, root):
    """Names of the leaves of a tree of PyTorch, in their order.  root: what stands in front."""
    names = []
    _walk(spec, root, names)
    return names


def argument_places(spec):
    """Names of a call's leaves.  spec: of (args, kwargs)."""
    positional, named = _children(spec)
    names = []
    for at, child in enumerate(_children(positional)):
        _walk(child, f"ARGS[{at}]", names)
    for key, child in zip(named.context or (), _children(named)):
        _walk(child, f"KWARGS[{key}]", names)
    return names


def _walk(spec, name, names):
    children = _children(spec)
    if spec.type is None and not children:
        names.append(name)
        return
    keys = spec.context if spec.type is dict else range(len(children))
    for key, child in zip(keys, children):
        _walk(child, f"{name}[{key}]", names)


def _children(spec):
    return spec.children() if hasattr(spec, "children") else spec.children_specs  # torch before 2.9
