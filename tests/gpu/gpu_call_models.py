"""A model that does what its request's script says: tensors on the GPU are made, cut, and sent to other models."""

from __future__ import annotations

import json
import queue

import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_models import MADE, asked

STEPS = """
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.top, self.error = pb_utils.get_input_tensor_by_name(request, "B"), None
        for step, *arguments in json.loads(json.loads(request.parameters())["script"]):
            getattr(self, step)(*arguments)
            if self.error is not None:
                break
        top, self.top = self.top, None  # it is not kept
        return pb_utils.InferenceResponse([top] if self.error is None else [], self.error)

    def made(self, more):
        # In memory of the model's own, on the GPU.
        self.top = pb_utils.Tensor.from_dlpack("B", Made(values(self.top) + numpy.float32(more)))

    def part(self, first, count):
        if self.top.is_cpu():
            self.top = pb_utils.Tensor("B", self.top.as_numpy()[first : first + count])
        else:
            self.top = pb_utils.Tensor.from_dlpack("B", Part(self.top, first, count))

    def host(self):
        self.top = pb_utils.Tensor("B", values(self.top))

    def call(self, model, script, memory=None):
        response = self.request(model, script, memory).exec()
        self.error = response.error()
        if self.error is None:
            self.top = response.output_tensors()[0]

    def ask(self, model, script, nth=0, memory=None):
        # Another model for any number of responses; the nth one is taken, and those behind it are not waited for.
        for at, response in enumerate(self.request(model, script, memory).exec(decoupled=True)):
            self.error = response.error()
            if at == nth or self.error is not None:
                break
        if self.error is None:
            self.top = response.output_tensors()[0]

    def request(self, model, script, memory):
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["B"], inputs=[self.top],
            preferred_memory=None if memory is None else pb_utils.PreferredMemory(memory),
            parameters={"script": json.dumps(script)})

    def queued(self, model, script):
        # A copy of an answer is queued behind other work when that is let go: it is of what the answer was.
        copy, stream, nbytes = Made(numpy.zeros(self.top.shape(), numpy.float32)), ctypes.c_void_p(), self.top.nbytes()
        call("cuStreamCreate", ctypes.byref(stream), 1)
        for _ in range(250):
            call("cuMemsetD8Async", copy.address, 0, ctypes.c_size_t(4), stream)
        call("cuMemcpyDtoDAsync_v2", copy.address, ctypes.c_uint64(self.top.address()), ctypes.c_size_t(nbytes), stream)
        self.top = pb_utils.Tensor("B", numpy.zeros(self.top.shape(), numpy.float32))
        self.call(model, script)
        call("cuStreamSynchronize", stream)
        call("cuStreamDestroy_v2", stream)
        self.top = pb_utils.Tensor.from_dlpack("B", copy)

    def is_cpu(self, expected):
        assert self.top.is_cpu() == expected, self.top.is_cpu()

    def send(self):
        # Of a model that streams: a response before the last one.
        self.sender.send(pb_utils.InferenceResponse([self.top]))

    def more(self, number):
        # Into the same memory on the GPU.
        found = values(self.top) + numpy.float32(number)
        address, nbytes = ctypes.c_uint64(self.top.address()), ctypes.c_size_t(found.nbytes)
        call("cuMemcpyHtoD_v2", address, found.ctypes.data_as(ctypes.c_void_p), nbytes)

    def left(self):
        # The client has left.
        while not self.sender.is_cancelled():
            pass

    def die(self):
        os.kill(os.getpid(), 9)

    def wait(self, folder):
        open(folder + "/here", "w").close()
        while not os.path.exists(folder + "/go"):
            pass
"""
NODE = (
    "import json\nimport os\nimport numpy\n"
    + MADE.split("class TritonPythonModel:")[0]
    + """
cuda.cuMemcpyDtoH_v2.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)

class Part:
    # Some of the numbers of a tensor on the GPU, which it keeps.
    def __init__(self, tensor, first, count):
        self.tensor, self.address, self.count = tensor, tensor.address() + 4 * first, count

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        return dlpack.capsule_of(self, self.address, [self.count], 11, (2, 0))

def values(tensor):
    if tensor.is_cpu():
        return tensor.as_numpy().copy()
    found = numpy.empty(tensor.shape(), numpy.float32)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", found.ctypes.data, tensor.address(), found.nbytes)
    return found

class TritonPythonModel:"""
    + MADE.split("class TritonPythonModel:")[1].split("    def execute")[0]
    + STEPS
)

STREAMS = "model_transaction_policy { decoupled: true }"
STREAM = (
    "import copy\nimport threading\n"
    + NODE.replace(
        "return [self.answer(request) for request in requests]",
        "for request in requests:\n            copy.copy(self).start(request, request.get_response_sender())",
    )
    + """
    def start(self, *given):
        # Each stream has a thread of its own, and what it works on.
        threading.Thread(target=self.stream, args=(list(given),)).start()

    def stream(self, given):
        self.initialize(None)  # the GPU's context is this thread's
        sender, request = given.pop(), given.pop()  # the thread refers to them no more
        self.sender = sender
        response = self.answer(request)
        del request, self.sender
        sender.send(response, 1)
"""
)
"""The same, decoupled: the last response is what the steps have come to."""


def script(*steps):
    return {"script": json.dumps(steps)}


def run(client, model, values, *steps):
    """What the model makes of a client's values in host memory."""
    tensor = tritonclient.http.InferInput("B", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return client.infer(model, [tensor], parameters=script(*steps)).as_numpy("B")


class Stream:
    """A client's stream: what has come, in order."""

    def __init__(self, client) -> None:
        self.client, self._answers = client, queue.Queue()
        client.start_stream(lambda result, error: self._answers.put(error or result))

    def ask(self, model, *steps, **where):
        """where: of `asked`."""
        call = asked(tritonclient.grpc, name="B", **where)
        self.client.async_stream_infer(model, **call, parameters=script(*steps))

    def next(self):
        found = self._answers.get(timeout=60)
        if isinstance(found, Exception):
            raise found
        return found

    def values(self):
        return self.next().as_numpy("B").tolist()
