"""Batches of instances on a GPU, for backends that take arrays.

Inputs that lie in GPU memory reach the backend there, outputs that somebody wants there stay.
"""

from tisfast_worker import cuda, dtypes, limits
from tisfast_worker.batch_arrays import BatchCall
from tisfast_worker.device_arena import FLAG_STAYS
from tisfast_worker.device_tensor import DEVICE, DeviceTensor
from tisfast_worker.errors import TritonModelException
from tisfast_worker.output_space import OutputSpace
from tisfast_worker.tensor import count

VECTOR_BYTES = 16
"""The widest load of a kernel.  Frameworks' own memory begins at multiples of it, and kernels may rely on that."""


class DeviceParts:
    """An input of a batch that is to be joined on the GPU, or lies there.

    parts: of one request each, in the order of the batch: DeviceInputs, and arrays in host memory; their bytes, one
    behind the other, are those of an array of `shape`.  BF16 on the host is an array of its bits.
    """

    __slots__ = ("parts", "shape")

    def __init__(self, parts, shape):
        """See the class."""
        self.parts, self.shape = parts, tuple(shape)

    def on_host(self):
        """The array, copied to host memory."""
        import numpy  # noqa: PLC0415 - there where this runs

        parts = [part.on_host() if part.__class__ is not numpy.ndarray else part for part in self.parts]
        return numpy.concatenate([part.reshape(-1) for part in parts]).reshape(self.shape)

    def ravel(self):
        """The same with one dimension."""
        return self.reshape((count(self.shape),))

    def reshape(self, shape):
        """The same elements."""
        return DeviceParts(self.parts, shape)

    def copy(self):
        """Itself: what keeps a part of it keeps the memory of that part's request."""
        return self


def pieces(given):
    """An input, a DeviceParts or an array in host memory, as what is to be copied to the GPU, one behind the other.

    Rows in the requests' own memory lie apart: large ones are copied from there.
    """
    if given.__class__ is DeviceParts:
        return given.parts
    if given.flags.c_contiguous or not given.ndim or given[0].nbytes < limits.GPU_PIECE_BYTES_MIN:
        return [given]
    return list(given)


class DeviceArray:
    """An output of a batch in GPU memory, row by row.  keep: what keeps the memory at `address`; code: its type.

    The part of numpy's arrays that cutting an output apart takes.
    """

    __slots__ = ("address", "code", "keep", "shape")

    def __init__(self, keep, address, shape, code):
        """See the class."""
        self.keep, self.address, self.shape, self.code = keep, address, tuple(shape), code

    def __len__(self):
        """Rows."""
        return self.shape[0]

    @property
    def ndim(self):
        """Dimensions."""
        return len(self.shape)

    @property
    def size(self):
        """Elements."""
        return count(self.shape)

    def __getitem__(self, rows):
        """Of a slice: the rows from its start to its stop, which are within the array."""
        step = count(self.shape[1:]) * dtypes.TYPES[self.code][2]
        shape = (rows.stop - rows.start, *self.shape[1:])
        return DeviceArray(self.keep, self.address + rows.start * step, shape, self.code)

    def reshape(self, shape):
        """The same elements; -1: in one dimension."""
        return DeviceArray(self.keep, self.address, (self.size,) if shape == -1 else shape, self.code)


class DeviceBatchCall(BatchCall):
    """See BatchCall."""

    def __init__(self, model, backend, new_lease, writer):
        """`writer`: the AnswerWriter, which is told when the GPU is lost."""
        BatchCall.__init__(self, model, backend, new_lease, writer.pinned)
        self._takes_device, self._joins, self._writer = backend.takes_device, backend.joins_on_device, writer

    def __call__(self, requests, execution):
        """See BatchCall.  After an error that leaves the process without its GPU the instance ends."""
        try:
            return BatchCall.__call__(self, requests, execution)
        except cuda.DeviceLost as error:
            self._writer.lose_device(error)
            error.is_told = True
            raise
        except Exception:
            if self._takes_device:
                self._look_for_gpu()
            raise

    def _look_for_gpu(self):
        try:
            cuda.wait(DEVICE[1])
        except cuda.DeviceLost as error:
            self._writer.lose_device(error)
        except TritonModelException:
            pass  # what failed is told by the framework

    def _array(self, request, name, wrong):
        tensor = request.find(name)
        if tensor.is_cpu():
            return BatchCall._array(self, request, name, wrong)
        return DeviceParts([tensor], tensor.shape()) if self._takes_device else tensor.on_host()

    def _concatenated(self, parts):
        if not (self._joins and min(map(_host_bytes, parts)) >= limits.GPU_PIECE_BYTES_MIN) and not any(
            part.__class__ is DeviceParts for part in parts
        ):
            return BatchCall._concatenated(self, parts)
        flat = []
        for part in parts:
            flat += part.parts if part.__class__ is DeviceParts else [part]
        return DeviceParts(flat, (sum(part.shape[0] for part in parts), *parts[0].shape[1:]))

    def _cut(self, name, array, requests, inputs, views):  # noqa: PLR0913, PLR0917 - as BatchCall's
        if array.__class__ is not DeviceArray:
            return BatchCall._cut(self, name, array, requests, inputs, views)
        return [DeviceTensor(name, part.code, part, DEVICE) for part in self._parts(name, array, requests)]


class DeviceSpace(OutputSpace):
    """See OutputSpace."""

    def __init__(self, writer, model):
        """`writer`: the AnswerWriter."""
        OutputSpace.__init__(self, writer)
        states = () if model.sequences is None else model.sequences.states
        self._states = frozenset(state.output_name for state in states)  # kept in host memory

    def wants(self, name):
        """See OutputSpace; the state of sequences is always wanted."""
        return name in self._states or OutputSpace.wants(self, name)

    def stays(self, name):
        """Whether a client of this batch wants this output in its GPU memory, or another model takes it there.

        It is a DeviceArray then; requests that want it otherwise get copies of their parts.  Not where halves of a
        batch are executed: a framework may use the memory of the first half's outputs for the second's.
        """
        spec = self._writer.spec_of(name)
        if spec is None or name in self._states or not self._places:
            return False
        return any(_stays(request, spec.index) for request in self._requests if not request.null)


def _host_bytes(part):
    """Of what can be copied to the GPU as it is; 0 of text."""
    return 0 if part.__class__ is DeviceParts or part.dtype.char == "O" else part.nbytes


def _stays(request, index):
    flags, asked = request._head[2], request._head[3]
    return asked >> index & 1 and (index in (request.output_places or ()) or flags & FLAG_STAYS)
