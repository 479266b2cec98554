"""A killed process that does not end, and had not closed memory that it was lent, keeps a lost GPU: it is named."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE, run
from tests.gpu.gpu_models import FLOATS, GPU, STAYS, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.system.helpers import until
from tests.unkillable import SOON, unkillable

NOT_CLOSED = 217  # of a driver that works still


def test_who_has_not_closed_what_it_was_lent_is_named(serve, stand_in, write_model, connect, export):
    for name in ("caller", "other"):
        write_model(name, NODE, FLOATS + GPU + STAYS)
    server = serve("--allow-client-shm=true", fault=f"{SOON}limits.GPU_LOST_SECONDS_MAX = 2\n").ready()
    client = connect(server, tritonclient.http)
    steps = ["made", 1], ["call", "other", [["is_cpu", False], ["host"]]]
    run(client, "caller", np.arange(1 << 18, dtype=np.float32), *steps)
    stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=server.worker("other_0_0"))
    server.says("does not close GPU memory of another process that instance other_0_0 of model 'other'")
    pid = server.worker("other_0_0")
    run(client, "caller", np.ones(1, np.float32), ["host"])  # what it has said of it is heard by now
    with unkillable(pid):
        os.kill(pid, signal.SIGKILL)
        who = f"instance other_0_0 of model 'other' (pid {pid})"
        server.says(f"{who} began to end and has not ended")
        stand_in.fail("cuIpcOpenMemHandle_v2", LAUNCH_FAILED, times=1, pid=server.process.pid)
        for said in ("launch failure", f"it begins anew when {who}, which was killed and has not ended, has"):
            with pytest.raises(InferenceServerException) as failed:
                register(client, "given", export(4096))
            assert said in str(failed.value)
    until(lambda: client.is_model_ready("other") and client.is_model_ready("caller"), "both are back")
    register(client, "given", export(4096))
