"""Weights that all instances of a model share: one file, which each of them maps.

The page cache holds one copy for all processes.  A model that writes to its weights gets pages of its own.  The file
lies in the cache of made files, so that what happens to the model's own file changes nothing here.
"""

import json
import mmap
import os

from tisfast_worker import limits
from tisfast_worker.artifact_cache import ArtifactCache, digest

WEIGHTS, INDEX = "weights.bin", "index.json"
_ALIGN = 4096


class Weights:
    """The storages of a program's modules, each with the tensors that lie in it, by the name of the first one."""

    def __init__(self, torch, modules):
        """Of modules in the memory of the host."""
        self._torch, self._by_name, seen = torch, {}, {}
        for at, module in enumerate(modules):
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
                    continue
                storage = tensor.untyped_storage()
                if storage.nbytes() < limits.SHARE_TENSOR_BYTES_MIN:
                    continue
                known = seen.setdefault(storage.data_ptr(), f"{at}.{name}")
                self._by_name.setdefault(known, []).append(tensor)

    @property
    def nbytes(self):
        """Of all storages."""
        return sum(tensors[0].untyped_storage().nbytes() for tensors in self._by_name.values())

    def write(self, folder):
        """Make the file, and the index that says where each storage is."""
        index, end = {}, 0
        with open(os.path.join(folder, WEIGHTS), "wb") as file:
            for name, tensors in self._by_name.items():
                end += -end % _ALIGN
                file.seek(end)
                content = self._content(tensors[0])
                file.write(memoryview(content.numpy()))
                index[name] = (end, len(content))
                end += len(content)
        with open(os.path.join(folder, INDEX), "w") as file:
            json.dump(index, file)

    def move(self, folder):
        """Have the tensors lie in the file; returns the bytes that do.  What is not in it, byte for byte, stays."""
        with open(os.path.join(folder, INDEX)) as file:
            index = json.load(file)
        moved = 0
        with open(os.path.join(folder, WEIGHTS), "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        for name, tensors in self._by_name.items():
            at, nbytes = index.get(name, (0, 0))
            content = self._content(tensors[0])
            if nbytes != len(content):
                continue
            base = self._torch.frombuffer(memory, dtype=self._torch.uint8, offset=at, count=nbytes)
            if not self._torch.equal(base, content):
                continue
            for tensor in tensors:
                typed = base[: nbytes - nbytes % tensor.element_size()].view(tensor.dtype)
                tensor.data = typed.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            moved += nbytes
        return moved

    def _content(self, tensor):
        """The bytes of its storage."""
        storage = tensor.untyped_storage()
        return self._torch.empty(0, dtype=self._torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


def share(torch, model, modules, files):
    """(bytes that are shared, what holds them: None where nothing is).  files: what the weights depend on.

    Raises OSError.
    """
    weights = Weights(torch, modules)
    if not model.cache or weights.nbytes < limits.SHARE_WEIGHTS_BYTES_MIN:
        return 0, None
    key = "pytorch-" + digest([torch.__version__], files)
    home, hold = ArtifactCache(model.cache).find(key, weights.write)
    try:
        return weights.move(home), hold
    except BaseException:
        hold.close()
        raise
