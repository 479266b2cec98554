"""Workers and clients that go while GPU memory is in use: nobody touches what was freed, and others go on."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, NBYTES, STAYS, WHERE, asked, register, unregistering
from tests.system.helpers import client_of_thread, until

VALUES = np.arange(NBYTES // 4, dtype=np.float32)
WAITS = IDENTITY.replace(
    "        found", '        import os\n        found', 1,
).replace("        return [", """        if requests[0].request_id() == "waits":
            open("{0}/here", "w").close()
            while not os.path.exists("{0}/go"):
                pass
        return [""")  # fmt: skip
"""It has its input, and waits before it answers with it."""


@pytest.fixture
def waiting(stand_in, serve, write_model, connect, export, tmp_path):
    """waiting(): (server, client, region, thread, its outcome) while the model has the region's memory."""

    def start():
        write_model("m", WAITS.replace("{0}", str(tmp_path)), CONFIG + GPU + STAYS)
        server = serve("--allow-client-shm=true").ready()
        client = connect(server, tritonclient.http)
        given = export(NBYTES)
        given.write(VALUES.tobytes())
        register(client, "given", given)
        outcome = []

        def ask():
            with client_of_thread(f"127.0.0.1:{server.port}") as own:
                try:
                    outcome.append(own.infer("m", request_id="waits", **asked(tritonclient.http)).as_numpy("B"))
                except InferenceServerException as error:
                    outcome.append(str(error))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        until((tmp_path / "here").exists, "the model has its input")
        return server, client, given, thread, outcome

    return start


def works(client, export, name="other"):
    """A region that is registered now."""
    memory = export(NBYTES)
    memory.write(VALUES[::-1].tobytes())
    register(client, name, memory)
    return client.infer("m", **asked(tritonclient.http, region=name)).as_numpy("B").tolist() == VALUES[::-1].tolist()


def test_a_worker_that_dies_with_a_region_open_leaves_no_reference(waiting, export, stand_in):
    before = stand_in.counted()
    server, client, given, thread, outcome = waiting()
    worker = server.worker("m_0_0")
    with unregistering(server, "given"):  # the request keeps it
        assert stand_in.counted()["closed"] == before["closed"]
        os.kill(worker, signal.SIGKILL)
    thread.join(60)
    assert outcome[0].endswith(
        "instance m_0_0 was killed by signal 9 (SIGKILL) while it executed this request; its input in region 'given' "
        "may be changed: write it again before you retry. A new instance is being started"
    )
    # The server's handle is closed with its last request; the worker's went with its process.
    assert stand_in.counted()["closed"] - before["closed"] == 1
    given.free()
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "it is back")
    assert works(client, export)
    assert stand_in.counted()["used_after_free"] == 0


def test_a_client_that_frees_its_region_while_a_model_has_it_gets_an_error(waiting, export, tmp_path):
    _, client, given, thread, outcome = waiting()
    given.free()
    (tmp_path / "go").touch()
    thread.join(60)
    assert "copying 1048576 bytes of GPU memory failed" in outcome[0]  # by the server: the model answers with its input
    client.unregister_cuda_shared_memory()
    assert works(client, export)


def test_a_client_that_frees_its_region_gets_an_error_where_the_server_copies(
    stand_in, serve, write_model, connect, export
):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server, tritonclient.http)
    given, kept = export(NBYTES), export(NBYTES)
    register(client, "given", given)
    register(client, "kept", kept)
    given.free()
    with pytest.raises(InferenceServerException, match="copying 1048576 bytes of GPU memory failed"):
        client.infer("m", **asked(tritonclient.http))
    with pytest.raises(InferenceServerException, match="must be unregistered and registered again"):
        client.infer("m", **asked(tritonclient.http, region="kept"))
    client.unregister_cuda_shared_memory()
    assert works(client, export, "kept")
    assert server.infer("m", [1.0])[0] == 200


def test_a_client_that_is_killed_leaves_a_region_that_is_unregistered_like_others(waiting, export, tmp_path):
    server, client, given, thread, outcome = waiting()
    given.kill()
    (tmp_path / "go").touch()
    thread.join(60)
    assert len(outcome) == 1  # the values, or an error: CUDA does not say
    client.unregister_cuda_shared_memory()
    until(lambda: client.is_model_ready("m"), "it is there, or back")
    assert works(client, export)
