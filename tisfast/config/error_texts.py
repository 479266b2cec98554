"""Triton's words for what more than one module of configurations finds wrong.  Layer 2 (config)."""

from __future__ import annotations


def no_backend(name: str) -> str:
    """The error of a model without a backend, in its configuration and by its files."""
    return (
        f"Invalid model name: Could not determine backend for model '{name}' with no backend in model configuration. "
        "Expected model name of the form 'model.<backend_name>'."
    )


def no_cache(name: str, why: str) -> str:
    """The error of a model that cannot use the response cache; why: `'decoupled' transaction policy`, or the like."""
    return f"Response Cache does not currently support model {name} with {why}. Please disable the response cache."


def no_dimension(called: str, what: str = "dimension") -> str:
    """The error of a dimension that is neither a size nor variable; called: the tensor, as its errors begin."""
    return f"{called} {what} must be integer >= 1, or -1 to indicate a variable-size dimension"


DECOUPLED = "'decoupled' transaction policy"
SEQUENCES = "sequence batching scheduler"
