"""One tensor of implicit state: what it begins with, and what may follow."""

from tisfast_worker import dtypes
from tisfast_worker.device_tensor import DeviceTensor
from tisfast_worker.tensor import InputLayout, Tensor, bytes_elements, count, raw_tensor, zeros


class InitialState:
    """The state that a sequence's first request finds."""

    def __init__(self, spec, batched):
        """Reads the file, if there is one.  Raises OSError, or ValueError when it holds too little."""
        shape = (1, *spec.initial_dims) if batched else spec.initial_dims
        self._layout, self._bytes = InputLayout(spec.input_name, spec.code, shape), None
        if spec.initial_path:
            with open(spec.initial_path, "rb") as file:
                self._bytes = file.read()
            if self._layout.nbytes is not None and len(self._bytes) < self._layout.nbytes:
                raise ValueError(
                    f"{spec.initial_path} holds {len(self._bytes)} bytes; the initial state of '{spec.input_name}' "
                    f"takes {self._layout.nbytes}"
                )

    def make(self):
        """A tensor of its own for each sequence: models write into them."""
        layout = self._layout
        if self._bytes is None:
            return zeros(layout)
        if layout.code == dtypes.BF16:
            return raw_tensor(layout.name, layout.code, self._bytes[: layout.nbytes], layout.shape)
        import numpy  # noqa: PLC0415

        if layout.code == dtypes.BYTES:
            array = numpy.empty(count(layout.shape), object)
            array[:] = bytes_elements(self._bytes, len(array), layout.name)
        else:
            array = numpy.frombuffer(bytearray(self._bytes[: layout.nbytes]), dtypes.TYPES[layout.code][3])
        return Tensor(layout.name, array.reshape(layout.shape))


def checked_state(model, spec, current, output):
    """The tensor that the next request finds, made of an output of the model.  Raises ValueError when it cannot be, and
    TritonModelException when it cannot be had from the GPU.

    A copy, in host memory: the model may write to what it returned.  With `use_same_buffer_for_input_output`, into the
    memory of the state that the model was given, unless it grew.
    """
    if output._code != spec.code:
        raise ValueError(
            f"model '{model.name}' returned state '{spec.output_name}' with data type "
            f"{dtypes.wire_name(output._code)}, its config says {dtypes.wire_name(spec.code)}"
        )
    shape, wanted = output.shape(), (1, *spec.dims) if model.batched else spec.dims
    if len(shape) != len(wanted) or any(w not in (-1, s) for w, s in zip(wanted, shape)):
        raise ValueError(
            f"unexpected shape for state '{spec.output_name}' for model '{model.name}'. Expected "
            f"{dtypes.dims_text(wanted)}, got {dtypes.dims_text(shape)}"
        )
    if spec.code == dtypes.BF16:
        bits = output._array
        content = output._content() if bits is None else bits.tobytes()
        return raw_tensor(spec.input_name, spec.code, content, tuple(shape))
    array = output.on_host() if isinstance(output, DeviceTensor) else output.as_numpy()
    before = current._array
    if array is before:  # written in place
        return current
    if spec.same_buffer and before.shape == array.shape:
        before[...] = array
        return current
    if array.dtype.char == "S":
        array = array.astype(object)
    return Tensor(spec.input_name, array.copy())
