"""An instance that always has another request closes clients' GPU memory between two of them.

Its model keeps memory that the instance was told to forget, and lets go of it when nothing more is told of any memory.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_call_models import STREAMS, Stream
from tests.gpu.gpu_models import CONFIG, GPU, STAYS, asked, register
from tests.system.helpers import until

NBYTES = 4096
ONE_SHARE = "from tisfast import limits\nlimits.SHARES_PER_WORKER_MAX = 1\n"
# "keep" keeps its input, "drop" lets go of that.  Requests in host memory wait for a file of their own.
ANSWERS = """
import os
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            name, tensor = request.request_id(), pb_utils.get_input_tensor_by_name(request, "A")
            if name == "keep":
                self.kept = tensor
            if name == "drop":
                self.kept = None
            if tensor.is_cpu():
                open("FOLDER/begun " + name, "w").close()
                while not os.path.exists("FOLDER/end " + name):
                    pass
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", numpy.ones(1, "f4"))]))
        return answers
"""
SENDS = ANSWERS.replace("return answers", "return None").replace(
    "            answers.append(", "            request.get_response_sender().send(flags=1, response="
)


@pytest.mark.parametrize(("model", "more"), [(ANSWERS, ""), (SENDS, STREAMS)], ids=["answers", "streams"])
def test_memory_is_closed_between_two_requests(  # noqa: PLR0917
    stand_in, serve, write_model, connect, export, tmp_path, model, more
):
    write_model("m", model.replace("FOLDER", str(tmp_path)), CONFIG + GPU + STAYS + more)
    server = serve("--allow-client-shm=true", fault=ONE_SHARE).ready()
    client, memory = connect(server, tritonclient.http), export(NBYTES)
    register(client, "given", memory)
    register(client, "other", export(NBYTES))
    stream = Stream(connect(server, tritonclient.grpc))

    def ask(name):
        tensor = tritonclient.grpc.InferInput("A", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
        stream.client.async_stream_infer("m", [tensor], request_id=name)

    def begins(name):
        until((tmp_path / f"begun {name}").exists, f"{name!r} is executed")

    for name, region in (("keep", "given"), ("evict", "other")):
        stream.client.async_stream_infer("m", **asked(tritonclient.grpc, NBYTES, region=region), request_id=name)
        stream.values()
    before = stand_in.counted()
    with ThreadPoolExecutor(1) as threads:
        ask("first")
        begins("first")
        closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/given/unregister", {})
        try:
            until(lambda: len(client.get_cuda_shared_memory_status()) == 1, "its name is gone")
            for name in ("drop", "last"):
                ask(name)
            (tmp_path / "end first").touch()
            begins("drop")
            for _ in range(2):  # turns of the server's loop, in which "last" goes to the instance behind "drop"
                server.ask("GET", "/v2/health/live")
            assert not closing.done()
            (tmp_path / "end drop").touch()
            begins("last")
            assert closing.result(60) == (200, {})  # while that is executed
        finally:
            for name in ("first", "drop", "last"):
                (tmp_path / f"end {name}").touch()
    memory.free()
    now = stand_in.counted()
    assert [now[name] - before[name] for name in ("closed", "freed_while_open")] == [2, 0]
