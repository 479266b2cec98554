"""Records as the server writes them, and the worker's readers of them."""

from __future__ import annotations

import os

import numpy as np
import triton_python_backend_utils as pb
from tisfast_worker import nursery
from tisfast_worker.answer_record import AnswerWriter
from tisfast_worker.completions import lease_type
from tisfast_worker.data_plane import DataPlane
from tisfast_worker.model import Model
from tisfast_worker.native import Library
from tisfast_worker.record import RequestReader

from tests.workers.driver import Answer, Plane, read_answer


def raw(array: np.ndarray) -> bytes:
    return pb.serialize_byte_tensor(array) if array.dtype == object else array.tobytes()


class Bench:
    """Both arenas of one model, with reader and writer over them."""

    def __init__(self, model: Model) -> None:
        self.plane = Plane(1 << 20, 1 << 20)
        self.ours = DataPlane(Library(nursery.LIBRARY), [os.dup(fd) for fd in self.plane.fds], 0)
        self.reader = RequestReader(model, self.ours.inputs.memory, None)
        self.writer = AnswerWriter(model, self.ours.outputs, lambda *_: None)
        self.lease = lease_type(self.ours.inputs.nbytes).from_address(self.ours.inputs.base)

    def __del__(self) -> None:
        self.ours.foreign.close()

    def read(self, data: bytes):
        at, nbytes = self.plane.place(data)
        return self.reader.read(at, nbytes, self.lease, None)

    def write(self, request, response) -> Answer:
        kind, status, nbytes, block = self.writer.write(request, response)
        answer = Answer(kind, 0, status, 0, block, (), 0)
        if kind == 2:
            read_answer(self.plane, answer, self.ours.outputs.offset(block), nbytes)
        else:
            at = self.ours.outputs.offset(block)
            answer.text = self.plane.outputs.memory[at : at + nbytes].decode()
        return answer
