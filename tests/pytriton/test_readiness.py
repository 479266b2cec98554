"""When a server is ready: with its models, or before."""

import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.pytriton.served import add, http, model, server
from tisfast.pytriton.model_config import ModelConfig
from tisfast.pytriton.model_config.common import ModelWarmup, WarmupInput
from tisfast.pytriton.triton import TritonLifecyclePolicy

WARM_UP = ModelConfig(model_warmup=[ModelWarmup("w", 1, {"a": WarmupInput(np.float32, (1,), zero_data=True)}, 1)])


def status(triton, what):
    """Of a GET."""
    try:
        with urllib.request.urlopen(f"{http(triton)}/v2/{what}") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(("local", "before"), [(True, 400), (False, 200)])
def test_a_server_with_models_of_its_own_is_ready_with_them(tmp_path, local, before):
    triton = server(workspace=tmp_path / "work")
    triton._policy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=local)
    seen = []

    def function(requests):
        seen.append((status(triton, "health/live"), status(triton, "health/ready")))
        return add(requests)

    triton.bind(**model("first", function, config=WARM_UP))
    triton.bind(**model("second", function, config=WARM_UP, model_version=3))
    triton.run()
    try:
        assert seen == [(200, before)] * 2
        assert [status(triton, f"models/{name}/ready") for name in ("first", "second")] == [200, 200]
        assert status(triton, "health/ready") == 200
    finally:
        triton.stop()
