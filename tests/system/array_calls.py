"""Calls of models that take and give arrays, for the tests of backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from tests.system.helpers import Server, until

UNREADY = ("--exit-on-error=false", "--strict-readiness=false")
AT_ONCE = 16


def infer(client: Any, name: str, outputs: Sequence[str] = (), **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Ask over gRPC: arrays by name in and out.  outputs: those that are asked for, all where it is empty."""
    tensors = []
    for each, array in arrays.items():
        tensors.append(grpcclient.InferInput(each, list(array.shape), grpcclient.np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    wanted = [grpcclient.InferRequestedOutput(each) for each in outputs] or None
    answer = client.infer(name, tensors, outputs=wanted)
    return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}


def infer_each(client: Any, name: str, requests: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """The answers to requests, of which many are under way at one time."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda arrays: infer(client, name, **arrays), requests))


def config_of(server: Server, name: str) -> dict[str, Any]:
    """The model's configuration as it is served."""
    return server.ask("GET", f"/v2/models/{name}/config")[1]


def reason_of(server: Server, name: str) -> str:
    """Why the model is not served, as the index says, waiting for it."""

    def told() -> str:
        entries = server.ask("POST", "/v2/repository/index", {})[1]
        return next((each.get("reason", "") for each in entries if each["name"] == name), "")  # type: ignore[misc]

    return str(until(told, f"the index has a reason for {name}"))


def executions(server: Server, name: str) -> tuple[int, int]:
    """How many requests were executed, in how many executions."""
    stats = server.ask("GET", f"/v2/models/{name}/stats")[1]["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]
