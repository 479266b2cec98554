"""Inputs that lie on the GPU, and outputs that stay there, as ONNX Runtime is told of them: by their addresses."""

import numpy
from tisfast_worker import dtypes
from tisfast_worker.cuda import join
from tisfast_worker.device_batches import VECTOR_BYTES, DeviceArray, DeviceParts

# ONNX's TensorProto.DataType: KServe's name.
_NAMES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 9: "BOOL", 10: "FP16",
    11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
_CODES = {names[0]: code for code, names in dtypes.TYPES.items()}
_ONNX = {_CODES[name]: number for number, name in _NAMES.items()}


class GpuTensors:
    """Tensors of one instance."""

    def __init__(self, runtime, device="cuda", join=join):
        """`runtime`: the package; device: as it calls it; `join`: cuda's."""
        self._runtime, self.device, self._join = runtime, device, join

    @staticmethod
    def chosen(inputs, outputs, space):
        """(names of inputs that are on the GPU, names of outputs that stay there)."""
        on_gpu = {name for name, given in inputs.items() if given.__class__ is DeviceParts}
        return on_gpu, {name for name in outputs if space.stays(name)}

    def bind(self, binding, name, given):
        """Bind DeviceParts to an input; returns what must be kept until the execution is done."""
        part = next(part for part in given.parts if part.__class__ is not numpy.ndarray)
        kind = _type_of(part.triton_dtype())
        if len(given.parts) == 1 and part.address() % VECTOR_BYTES == 0:
            kept, address = part, part.address()
        else:
            kept = self._runtime.OrtValue.ortvalue_from_shape_and_type(list(given.shape), kind, self.device, 0)
            self._join(kept.data_ptr(), given.parts)
            address = kept.data_ptr()
        binding.bind_input(name, self.device, 0, kind, given.shape, address)
        return kept

    def left(self, value):
        """An output on the GPU."""
        return DeviceArray(value, value.data_ptr(), value.shape(), _CODES[_NAMES[value.element_type()]])


def _type_of(code):
    """As ONNX Runtime takes it: numpy's, where that has one."""
    return _ONNX[code] if code == dtypes.BF16 else numpy.dtype(dtypes.TYPES[code][3]).type
