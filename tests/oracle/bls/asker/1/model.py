"""Asks other models in every way there is, good and bad, and tells what came back; one CASE to a request."""

import asyncio
import json
import multiprocessing
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

ONE = {"A": np.ones(2, np.float32)}


def call(model, inputs=ONE, outputs=("B",), **more):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=list(outputs), inputs=tensors, **more)


def told(response):
    """A response as JSON."""
    if response.has_error():
        return {"error": response.error().message()}
    outputs = {}
    for tensor in response.output_tensors():
        array = tensor.as_numpy()
        outputs[tensor.name()] = [each.decode() for each in array.ravel()] if array.dtype == object else array.tolist()
    return {"outputs": outputs}


def asked(*arguments, **more):
    return told(call(*arguments, **more).exec())


def facts(**more):
    response = call("plain", outputs=["FACTS"], **more).exec()
    return json.loads(pb_utils.get_output_tensor_by_name(response, "FACTS").as_numpy()[0])


def stream(number, **more):
    return call("stream", {"N": np.array([number], np.int32)}, ["OUT"], **more)


def step(number, sequence, flags=0):
    return told(call("sequence", {"A": np.array([[number]], np.int32)}, correlation_id=sequence, flags=flags).exec())


def codes():
    questions = [call("nobody"), call("plain", {"A": np.float32([-1])}), call("plain", {"A": np.float32([-2])})]
    return [int(question.exec().error().code()) for question in questions]


def in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(asked("plain")))
    thread.start()
    thread.join()
    return found


def in_a_process():
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)

    def ask():
        try:
            send.send(asked("plain"))
        except Exception as error:
            send.send({"raised": type(error).__name__, "text": str(error)})

    process = multiprocessing.get_context("fork").Process(target=ask)
    process.start()
    found = receive.recv() if receive.poll(20) else "silence"
    process.terminate()
    process.join()
    return found


def several(count=3):
    async def gather():
        calls = [call("plain", {"A": np.float32([number])}).async_exec() for number in range(count)]
        return [told(each) for each in await asyncio.gather(*calls)]

    return asyncio.run(gather())


def async_stream():
    async def collect():
        return [told(each) async for each in await stream(3).async_exec(decoupled=True)]

    return asyncio.run(collect())


def cancelled():
    found = stream(100).exec(decoupled=True)
    first = told(next(iter(found)))
    found.cancel()
    return [first, *(told(each) for each in found)]


def cancelled_late():
    found = stream(1).exec(decoupled=True)
    said = [told(each) for each in found]
    found.cancel()
    return said + [told(each) for each in found]


def typed(dtype):
    return asked("plain", {"A": np.ones(2, dtype)})


def into_host_memory():
    return asked("plain", preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0))


def strings():
    return facts(inputs={**ONE, "TEXT": np.array([b"", "\u00e4".encode(), b"c"], object)})


def sequence():
    return [step(1, 5, 1), step(2, 5), step(3, 6), step(4, 5, 2), step(5, 5)]


def parameters_back():
    response = call("plain", {"A": np.float32([-3])}).exec()
    return json.loads(response.parameters())


def array_of_outputs(names):
    tensors = [pb_utils.Tensor("A", ONE["A"])]
    return pb_utils.InferenceRequest(model_name="plain", requested_output_names=names, inputs=tensors)


def inputs_in_an_array():
    tensors = np.empty(1, object)
    tensors[0] = pb_utils.Tensor("A", ONE["A"])
    return told(pb_utils.InferenceRequest(model_name="plain", requested_output_names=["B"], inputs=tensors).exec())


def by_position():
    tensors = [pb_utils.Tensor("A", ONE["A"])]
    request = pb_utils.InferenceRequest("id", 5, tensors, ["FACTS"], "plain", 1, 0, 1000000)
    return json.loads(pb_utils.get_output_tensor_by_name(request.exec(), "FACTS").as_numpy()[0])


def metric_in_bytes():
    kind = pb_utils.MetricFamily.COUNTER
    metric = pb_utils.MetricFamily(name=b"asker_counts", description=b"d", kind=kind).Metric(labels={"a": "b"})
    metric.increment(2)
    return metric.value()


def construct(**more):
    whole = {"inputs": [pb_utils.Tensor("A", ONE["A"])], "requested_output_names": ["B"], "model_name": "plain"}
    pb_utils.InferenceRequest(**{**whole, **more})


CASES = {
    "an answer": lambda: asked("plain"),
    "both outputs, one asked for": lambda: asked("plain", outputs=["B"]),
    "no outputs asked for": lambda: sorted(asked("plain", outputs=[])["outputs"]),
    "an output twice": lambda: asked("plain", outputs=["B", "B"]),
    "an unknown output": lambda: asked("plain", outputs=["X"]),
    "an unknown model": lambda: asked("nobody"),
    "a model without a name": lambda: asked(""),
    "version 0": lambda: asked("plain", model_version=0),
    "a version below -1": lambda: asked("plain", model_version=-2),
    "a name in bytes": lambda: asked(b"plain"),
    "a name of a string tensor": lambda: asked(np.array([b"plain"], object)[0]),
    "outputs in bytes": lambda: asked("plain", outputs=[b"B"]),
    "outputs in an array": lambda: told(array_of_outputs(np.array(["B"])).exec()),
    "inputs in an array": inputs_in_an_array,
    "an id in bytes": lambda: facts(request_id=b"mine"),
    "numbers of numpy": lambda: facts(flags=np.uint32(3), timeout=np.int64(1000000), model_version=np.int64(1)),
    "a correlation of True": lambda: facts(correlation_id=True),
    "arguments by position": by_position,
    "a tensor's name in bytes": lambda: pb_utils.Tensor(b"A", ONE["A"]).name(),
    "an error's text in bytes": lambda: pb_utils.TritonError(b"text").message(),
    "a log line in bytes": lambda: pb_utils.Logger.log_info(b"text"),
    "a metric's name in bytes": metric_in_bytes,
    "ready, in bytes": lambda: pb_utils.is_model_ready(model_name=b"plain", model_version=b"1"),
    "outputs in a text": lambda: construct(requested_output_names="B"),
    "an unknown version": lambda: asked("plain", model_version=7),
    "its version": lambda: asked("plain", model_version=1),
    "a model that failed to load": lambda: asked("and_fails"),
    "no inputs": lambda: asked("plain", {}),
    "an unknown input": lambda: asked("plain", {**ONE, "X": ONE["A"]}),
    "another input": lambda: asked("plain", {"X": ONE["A"]}),
    "an input twice": lambda: told(
        pb_utils.InferenceRequest(
            model_name="plain", requested_output_names=["B"], inputs=[pb_utils.Tensor("A", ONE["A"])] * 2
        ).exec()
    ),
    "another type": lambda: typed(np.int32),
    "another rank": lambda: asked("plain", {"A": np.ones((2, 2), np.float32)}),
    "a batch dimension missing": lambda: asked("batched", {"A": np.ones(2, np.int64)}),
    "another shape": lambda: asked("batched", {"A": np.ones((1, 3), np.int64)}),
    "a batch": lambda: asked("batched", {"A": np.ones((3, 2), np.int64)}),
    "too large a batch": lambda: asked("batched", {"A": np.ones((5, 2), np.int64)}),
    "an empty tensor": lambda: asked("plain", {"A": np.ones(0, np.float32)}),
    "strings": strings,
    "the model raises": lambda: asked("plain", {"A": np.float32([-1])}),
    "the model answers an error": lambda: asked("plain", {"A": np.float32([-2])}),
    "codes of errors": codes,
    "parameters of an answer": parameters_back,
    "an ensemble": lambda: asked("joined"),
    "an ensemble whose step raises": lambda: asked("joined", {"A": np.float32([-1])}),
    "what the model sees": facts,
    "id": lambda: facts(request_id="mine"),
    "correlation": lambda: facts(correlation_id=7),
    "correlation by text": lambda: facts(correlation_id="seven"),
    "flags": lambda: facts(flags=3),
    "timeout": lambda: facts(timeout=1000000),
    "parameters": lambda: facts(parameters=json.dumps({"i": 1, "s": "t", "b": True})),
    "parameters as a dict": lambda: facts(parameters={"i": 1, "s": "t", "b": True}),
    "a priority is a parameter": lambda: facts(parameters={"priority": 1}),
    "preferred memory": into_host_memory,
    "a sequence": sequence,
    "no sequence": lambda: step(1, 0),
    "in a thread": in_a_thread,
    "in a process": in_a_process,
    "several at once": several,
    "a stream without decoupled": lambda: told(stream(2).exec()),
    "a stream": lambda: [told(each) for each in stream(3).exec(decoupled=True)],
    "a stream of nothing": lambda: [told(each) for each in stream(0).exec(decoupled=True)],
    "a stream that fails": lambda: [told(each) for each in stream(-2).exec(decoupled=True)],
    "a stream in a coroutine": async_stream,
    "a stream of one answer": lambda: [told(each) for each in call("plain").exec(decoupled=True)],
    "a stream of an unknown model": lambda: [told(each) for each in call("nobody").exec(decoupled=True)],
    "a stream that is cancelled": cancelled,
    "a stream that is cancelled too late": cancelled_late,
    "inputs of None": lambda: construct(inputs=None),
    "an input of None": lambda: construct(inputs=[None]),
    "inputs that are no tensors": lambda: construct(inputs=["A"]),
    "outputs of None": lambda: construct(requested_output_names=None),
    "an output of None": lambda: construct(requested_output_names=[None]),
    "a model name of None": lambda: construct(model_name=None),
    "a request id of None": lambda: construct(request_id=None),
    "a correlation of None": lambda: construct(correlation_id=None),
    "a correlation of a list": lambda: construct(correlation_id=[1]),
    "flags of text": lambda: construct(flags="1"),
    "parameters that are no JSON": lambda: construct(parameters="{"),
    "parameters of a list": lambda: construct(parameters={"a": [1]}),
    "ready": lambda: pb_utils.is_model_ready(model_name="plain"),
    "ready by version": lambda: pb_utils.is_model_ready(model_name="plain", model_version="1"),
    "ready by an unknown version": lambda: pb_utils.is_model_ready(model_name="plain", model_version="7"),
    "ready by a version that is no number": lambda: pb_utils.is_model_ready(model_name="plain", model_version="x"),
    "ready, a number for a version": lambda: pb_utils.is_model_ready(model_name="plain", model_version=1),
    "ready, unknown": lambda: pb_utils.is_model_ready(model_name="nobody"),
    "ready, failed to load": lambda: pb_utils.is_model_ready(model_name="and_fails"),
    "ready, an ensemble": lambda: pb_utils.is_model_ready(model_name="joined"),
}


class TritonPythonModel:
    """One case to a request."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        case = pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode()
        try:
            said = {"returned": CASES[case]()}
        except Exception as error:
            said = {"raised": type(error).__name__, "text": str(error)}
        return pb_utils.InferenceResponse([pb_utils.Tensor("SAID", np.array([json.dumps(said).encode()], object))])
