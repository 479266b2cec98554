"""Weights that all instances share: the optimised graph, and beside it its weights as the kernels want them.

They lie in one file, which each session maps: the page cache holds one copy for all processes.  The file is made once,
in a process of its own, whose memory goes with it.  Run as a script, this is that process.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys

GRAPH, WEIGHTS = "model.onnx", "weights.bin"
_PR_SET_PDEATHSIG = 1
_PROCESSOR = ("model name", "flags", "Features", "CPU part")  # lines that say what it can
_WEIGHT_BYTES_MIN = 4096  # smaller ones stay in the graph
_VERSION_MIN = (1, 21)  # that writes weights as the kernels want them
_TEXT_CHARS_MAX = 2000


def can_share(version):
    """Whether this version of ONNX Runtime can."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) >= _VERSION_MIN


def processor():
    """Facts of the processor that optimised graphs depend on, as text."""
    try:
        with open("/proc/cpuinfo") as file:
            return "".join(sorted({line for line in file if line.startswith(_PROCESSOR)}))
    except OSError:
        return os.uname().machine


def make(path, folder, level, entries):
    """Write GRAPH and WEIGHTS into `folder`.  Raises OSError with what was said when it cannot be.

    level: the name of the graph optimisation level; entries: (key, value) of the session's configuration.
    """
    order = json.dumps({"path": path, "folder": folder, "level": level, "entries": list(entries)})
    done = subprocess.run(
        [sys.executable, "-I", os.path.abspath(__file__), order, str(os.getpid())],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-_TEXT_CHARS_MAX:]
        raise OSError(f"it ended with {done.returncode}: {said}")


def _main(order, parent):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return
    import onnxruntime  # noqa: PLC0415 - the worker that imports this module has its own way

    asked = json.loads(order)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, asked["level"])
    options.optimized_model_filepath = os.path.join(asked["folder"], GRAPH)
    for key, value in [
        *asked["entries"],
        ("session.optimized_model_external_initializers_file_name", WEIGHTS),
        ("session.optimized_model_external_initializers_min_size_in_bytes", str(_WEIGHT_BYTES_MIN)),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ]:
        options.add_session_config_entry(key, value)
    onnxruntime.InferenceSession(asked["path"], options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    _main(*sys.argv[1:])
