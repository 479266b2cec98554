"""Tensors of an instance on a GPU: taken where they lie, and left there where somebody wants them there."""

from tisfast_worker.device_batches import VECTOR_BYTES, DeviceArray, DeviceParts, pieces
from tisfast_worker.serve import backend_module

_tensors = backend_module("pytorch_tensors")


class GpuReader(_tensors.Reader):
    """Makes tensors on the GPU of arrays and of what lies there."""

    def __init__(self, torch, model, device):
        """`device`: of PyTorch."""
        _tensors.Reader.__init__(self, torch, model)
        self._device = device

    def read(self, name, array):
        """See Reader; also of DeviceParts."""
        if array.__class__ is not DeviceParts and array.dtype.char == "O":
            return _tensors.Reader.read(self, name, array)
        sources = [self._source(name, part) for part in pieces(array)]
        if len(sources) == 1:
            return sources[0].to(self._device, non_blocking=True).reshape(array.shape)
        found = self._torch.empty(array.shape, dtype=sources[0].dtype, device=self._device)
        flat, at = found.view(-1), 0
        for source in sources:
            flat[at : at + source.numel()].copy_(source.reshape(-1), non_blocking=True)
            at += source.numel()
        return found

    def _source(self, name, part):
        """A tensor where the part lies: a DeviceInput's memory itself."""
        if not hasattr(part, "bytes_to_dlpack"):
            return _tensors.Reader.read(self, name, part)
        code = part.triton_dtype()
        found = self._torch.from_dlpack(part.bytes_to_dlpack())
        if part.address() % VECTOR_BYTES:
            found = found.clone()
        return found.view(_tensors.dtype_of(self._torch, code, f"input '{name}'")).view(part.shape())


class GpuWriter(_tensors.Writer):
    """Makes outputs of what a model returned."""

    def __init__(self, torch, model, device, cleans):
        """cleans: GPU memory that is free is given back after each batch."""
        _tensors.Writer.__init__(self, torch, model)
        self._device, self._cleans = device, cleans

    def outputs(self, values, codes, space):
        """Arrays, and DeviceArrays of what is to stay; what nobody wants is left out.  All that was queued is done.

        values: tensors and texts by name; space: the DeviceSpace.
        """
        found, leaving = {}, {}
        for name, value in values.items():
            if not isinstance(value, self._torch.Tensor) or value.device.type != self._device.type:
                found[name] = self.array(name, value, codes[name])
                continue
            self.check(name, value, codes[name])
            if space.stays(name):
                whole = value.contiguous()
                found[name] = DeviceArray(whole, whole.data_ptr(), whole.shape, codes[name])
            elif space.wants(name):
                leaving[name] = value
        if leaving:
            self._copy(leaving, codes, space, found)
        # Also where nothing is left to copy: inputs are the clients' memory, which is theirs again with the answer.
        self._torch.cuda.current_stream(self._device).synchronize()
        if self._cleans:
            self._torch.cuda.empty_cache()
        return found

    def _copy(self, leaving, codes, space, found):
        """Queue copies to the host: to where the client is answered from, if that can be."""
        places = space.take({name: value.shape for name, value in leaving.items()})
        for name, value in leaving.items():
            if name in places:
                found[name] = places[name]
                to = self._over(places[name], value.dtype)
            else:
                to = self._torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
                found[name] = self.array(name, to, codes[name])
            to.copy_(value, non_blocking=True)

    def _over(self, array, dtype):
        """A tensor over an array of this type, or of its bits."""
        if dtype == self._torch.bfloat16:
            return self._torch.from_numpy(array.view("<i2")).view(dtype)
        return self._torch.from_numpy(array)
