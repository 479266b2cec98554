"""What a model does to memory that it was not given stays its own affair."""

from __future__ import annotations

import os
import signal

from tests.system.helpers import ADD_ONE, until

STRAY = """
import ctypes
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for line in open("/proc/self/maps"):
            if "tisfast-bell" in line:
                ctypes.memset(int(line.split("-")[0], 16), 255, 128)
        raise pb_utils.TritonModelException("still there")
"""


def test_a_stray_write_to_what_all_workers_map_ends_that_worker_alone(serve, write_model):
    write_model("stray", STRAY)
    write_model("sound", ADD_ONE)
    server = serve().ready()
    status, answer = server.infer("stray")
    assert status == 503 and "SIGSEGV" in answer["error"]
    pid = server.worker("sound_0")
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.worker("sound_0") != pid, "another worker of 'sound'")
    until(lambda: server.infer("sound")[0] == 200, "'sound' answers")
    until(lambda: server.model_ready("stray"), "'stray' is back")


def test_no_worker_can_write_to_the_bell_page(serve, write_model):
    write_model("opener", ADD_ONE.replace("return a + 1", "return a + can_be_written()") + """
import mmap, os
def can_be_written():
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "tisfast-bell" in os.readlink(f"/proc/self/fd/{fd}"):
                mmap.mmap(int(fd), 128)
                return 1
        except (OSError, ValueError):
            pass
    return 0
""")  # fmt: skip
    status, answer = serve().ready().infer("opener", [5.0])
    assert (status, answer["outputs"][0]["data"]) == (200, [5.0])
