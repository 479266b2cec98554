"""Models with tensors on a GPU for perf.macro.gpu."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

IMAGE: Final = (3, 224, 224)
CLASSES: Final = 1000
ROWS_MOST: Final = 32
_ON_GPU: Final = "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n"
_ON_CPU: Final = "instance_group [ { kind: KIND_CPU } ]\n"
_STAYS: Final = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'
_FLOATS: Final = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_HEAD: Final = """
import torch
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "X") for request in requests]
        return [pb_utils.InferenceResponse([self.answer(tensor)]) for tensor in found]

    def answer(self, tensor):
"""
PASSED_ON: Final = "        return tensor\n"
BY_TORCH: Final = "        return pb_utils.Tensor.from_dlpack('X', torch.from_dlpack(tensor) + 1)\n"
FROM_HOST: Final = """
        on_gpu = torch.from_numpy(tensor.as_numpy()).to("cuda", non_blocking=True)
        return pb_utils.Tensor.from_dlpack("X", on_gpu)
"""
_STEP: Final = """{ model_name: "%s" model_version: -1
  input_map { key: "X" value: "%s" } output_map { key: "X" value: "%s" } }"""


def write_python(home: Path, answer: str, *, on_gpu: bool = True, stays: bool = True) -> None:
    """A Python model; stays: its inputs are not copied to the host."""
    (home / "1").mkdir(parents=True)
    (home / "1/model.py").write_text(_HEAD + answer)
    where = (_ON_GPU if on_gpu else _ON_CPU) + (_STAYS if stays else "")
    (home / "config.pbtxt").write_text(f'backend: "python"{_FLOATS}{where}')


def write_chain(home: Path, models: list[str]) -> None:
    """An ensemble of models, one after the other, from X to Y."""
    (home / "1").mkdir(parents=True)
    names = ["X", *(f"t{at}" for at in range(1, len(models))), "Y"]
    steps = ", ".join(_STEP % (model, *names[at : at + 2]) for at, model in enumerate(models))
    floats = _FLOATS.replace('output [ { name: "X"', 'output [ { name: "Y"')
    (home / "config.pbtxt").write_text(f'platform: "ensemble"{floats}ensemble_scheduling {{ step [ {steps} ] }}\n')


def write_network(home: Path, instances: int) -> Path:
    """A convolution network of torchvision in TorchScript, for images of 600 KB, with dynamic batching; its file."""
    import torch  # noqa: PLC0415 - of its own row only
    import torchvision  # noqa: PLC0415

    (home / "1").mkdir(parents=True)
    path = home / "1/model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions would rather have it exported
        torch.jit.trace(torchvision.models.resnet50().eval(), torch.zeros(1, *IMAGE)).save(str(path))
    (home / "config.pbtxt").write_text(f"""
backend: "pytorch" max_batch_size: {ROWS_MOST}
input [ {{ name: "INPUT__0" data_type: TYPE_FP32 dims: [ {", ".join(map(str, IMAGE))} ] }} ]
output [ {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ {CLASSES} ] }} ]
instance_group [ {{ count: {instances} kind: KIND_GPU gpus: [ 0 ] }} ]
dynamic_batching {{ }}
""")
    return path
