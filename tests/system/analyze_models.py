"""Models whose best configuration is known on any machine: they wait instead of computing."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.system.helpers import ROOT

SECONDS_MAX = 120
ANSWER = """
import fcntl, os, signal, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.members = os.path.join(args["model_repository"], "..", "..", "members")
        os.makedirs(self.members, exist_ok=True)
        self.member = os.path.join(self.members, str(os.getpid()))
        open(self.member, "w").close()

    def finalize(self):
        os.remove(self.member)

    def execute(self, requests):
        self.wait(requests)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(each, "A").as_numpy())])
            for each in requests
        ]
"""
# Each request waits by itself: n instances answer n times as many.
ALONE = (
    ANSWER
    + """
    def wait(self, requests):
        for _ in requests:
            time.sleep(0.02)
"""
)
# An execution waits, whatever the number of its requests: large batches are best.
TOGETHER = (
    ANSWER
    + """
    def wait(self, requests):
        time.sleep(0.02)
"""
)
# All instances share one thing, and each further one makes it slower: one instance is best.
SHARED = (
    ANSWER
    + """
    def wait(self, requests):
        with open(os.path.join(self.members, "..", "lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for _ in requests:
                time.sleep(0.01 * len(os.listdir(self.members)))
"""
)
# It does not load with more than two instances.
SMALL = (
    ALONE
    + """
    def initialize(self, args):
        if args["model_instance_name"].endswith("_2"):
            raise ValueError("no room for a third instance")

    def finalize(self):
        pass
"""
)
# With a parameter it kills its server: the parent of the process that has forked it, as it loads.
KILLER = (
    ANSWER
    + """
    def wait(self, requests):
        if self.mode == "kill":
            signal.pidfd_send_signal(self.server, signal.SIGKILL)
        time.sleep(0.02)
"""
).replace(
    "    def initialize(self, args):",
    """    def initialize(self, args):
        self.mode = mode_of(args)
        with open(f"/proc/{os.getppid()}/stat") as file:
            self.server = os.pidfd_open(int(file.read().rpartition(")")[2].split()[1]))""",
)
MODE = """
def mode_of(args):
    import json
    return json.loads(args["model_config"])["parameters"].get("MODE", {}).get("string_value", "")
"""
KILLER += MODE
# With a parameter its load waits until somebody says that it may go on.
HANGING = (
    ALONE.replace(
        "    def initialize(self, args):",
        """    def initialize(self, args):
        folder = os.path.join(args["model_repository"], "..", "..")
        if mode_of(args) == "hang":
            open(os.path.join(folder, "hangs"), "w").close()
            while not os.path.exists(os.path.join(folder, "go on")):
                time.sleep(0.01)""",
    )
    + MODE
)
PLAIN = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
BATCHED = PLAIN + "max_batch_size: 1\n"
SHORT = ("-p", "500", "-s", "1000000", "-r", "20", "--confirm", "0")  # three windows that agree, whatever they say


def started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tisfast", "analyze", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def analyze(*arguments: object) -> tuple[int, str, str]:
    """Its exit code, and what it printed; it always ends."""
    process = started(*arguments)
    try:
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    return process.returncode, out, err
