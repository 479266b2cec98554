"""Long copies between host and GPU: the server answers others while they are made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_models import CONFIG, GPU, RETURNED, STAYS, WHERE, asked, ensemble, register
from tests.system.helpers import until

NBYTES = 4 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
HOST = CONFIG.replace('"A"', '"B"')
TWICE = WHERE.replace('"A"', '"B"').replace("t.as_numpy()", "t.as_numpy() * 2")


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("case", ["input", "answer", "between", "output"])
def test_others_are_answered_while_it_is_copied(stand_in, serve, write_model, connect, export, module, case):  # noqa: PLR0917
    on_gpu = HOST + GPU + STAYS
    if case == "between":  # the second step takes no GPU memory
        write_model("m0", RETURNED, on_gpu)
        write_model("m1", TWICE, HOST)
        folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "B")))
        (folder / "1/model.py").unlink()
    else:
        write_model("m", RETURNED if case == "answer" else TWICE, on_gpu if case == "answer" else HOST)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server, module)
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    register(client, "wanted", wanted)
    name = "A" if case == "between" else "B"
    call = asked(module, NBYTES, 0, "wanted" if case == "output" else None, name)
    if case == "output":
        call["inputs"][0] = module.InferInput("B", [len(VALUES)], "FP32")
        call["inputs"][0].set_data_from_numpy(VALUES)
    ready = server.said(lambda r: r.get("event") == "ready", "ready")

    def infer():  # a client of its own: tritonclient's over HTTP belong to their thread
        port = ready["grpc_port" if module is tritonclient.grpc else "http_port"]
        with module.InferenceServerClient(f"localhost:{port}") as client:
            return client.infer("m", **call)

    before = stand_in.counted()["operations_held"]
    with ThreadPoolExecutor(1) as threads:
        with stand_in.holding():
            answer = threads.submit(infer)
            until(lambda: stand_in.counted()["operations_held"] > before, "the copy has begun")
            assert client.is_server_live()
            assert not answer.done()
        found = answer.result(60)
    values = np.frombuffer(wanted.read(NBYTES), np.float32) if case == "output" else found.as_numpy("B")
    assert (values == VALUES * (1 if case == "answer" else 2)).all()


def test_a_short_copy_does_not_wait_for_a_long_one(stand_in, serve, write_model, connect, export):
    write_model("m", TWICE, HOST)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server, tritonclient.grpc)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    before = stand_in.counted()["operations_held"]
    long, short = (asked(tritonclient.grpc, nbytes, 0, None, "B") for nbytes in (NBYTES, 4096))
    with ThreadPoolExecutor(1) as threads:
        with stand_in.holding(at_least=NBYTES):
            answer = threads.submit(client.infer, "m", **long)
            until(lambda: stand_in.counted()["operations_held"] > before, "the copy has begun")
            answered = client.infer("m", **short, client_timeout=30)
            assert (answered.as_numpy("B") == VALUES[:1024] * 2).all()
            assert not answer.done()
        assert (answer.result(60).as_numpy("B") == VALUES * 2).all()
