"""Streams of the client that is awaited: they end with their reader, and run ahead of it by a bounded amount."""

from __future__ import annotations

import asyncio
import threading
from concurrent import futures
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tisfast import limits
from tisfast.client import AsyncClient, BadRequest, Client

A = np.ones(1, np.float32)
METADATA = pb.ModelMetadataResponse(
    name="m",
    inputs=[{"name": "A", "datatype": "FP32", "shape": [-1]}],
    outputs=[{"name": "B", "datatype": "FP32", "shape": [-1]}],
)
ANSWER_BYTES = 1024 * 1024
ANSWER = pb.ModelStreamInferResponse(
    infer_response={
        "model_name": "m",
        "outputs": [{"name": "B", "datatype": "FP32", "shape": [ANSWER_BYTES // 4]}],
        "raw_output_contents": [bytes(ANSWER_BYTES)],
    }
).SerializeToString()


@contextmanager
def streaming(answers: int, stay: bool = False):
    """grpcio's server, whose model answers as fast as it may.  Gives the URL, what was answered, and its end.

    stay: the model ends no stream, its client does.
    """
    answered, ended = [0], threading.Event()

    def stream(_, context):
        context.add_callback(ended.set)
        for _ in range(answers):
            answered[0] += 1
            yield ANSWER
        if stay:
            ended.wait(60)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method.endswith("ModelMetadata"):
                return grpc.unary_unary_rpc_method_handler(lambda *_: METADATA.SerializeToString())
            if details.method.endswith("ServerLive"):
                live = pb.ServerLiveResponse(live=True).SerializeToString()
                return grpc.unary_unary_rpc_method_handler(lambda *_: live)
            return grpc.stream_stream_rpc_method_handler(stream)

    made = grpc.server(futures.ThreadPoolExecutor(4), [Handler()])
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    try:
        yield f"grpc://127.0.0.1:{port}", answered, ended
    finally:
        made.stop(None).wait(60)


def test_a_loop_that_is_left_ends_its_stream():
    async def main(url, ended):
        async with AsyncClient(url) as client:
            async for answer in client.model("m").stream(A):
                assert answer.B.nbytes == ANSWER_BYTES
                break
            return await asyncio.to_thread(ended.wait, 60)

    with streaming(100_000) as (url, _, ended):
        assert asyncio.run(main(url, ended))


def test_a_slow_reader_holds_the_model_back():
    ahead = 0

    async def main(url, answered):
        nonlocal ahead
        taken = 0
        async with AsyncClient(url) as client:
            async for answer in client.model("m").stream(A):
                taken += 1
                assert answer.B.nbytes == ANSWER_BYTES
                for _ in range(5):  # time for the server
                    assert await client.live()
                ahead = max(ahead, answered[0] - taken)
        return taken

    with streaming(150) as (url, answered, _):
        assert asyncio.run(main(url, answered)) == 150
    room = limits.CLIENT_UNREAD_BYTES_MAX + limits.HTTP2_STREAM_WINDOW_BYTES
    assert ahead <= room // ANSWER_BYTES + 10  # and what grpcio itself holds


def test_who_reads_a_stream_that_is_cancelled_is_told_its_end():
    async def main(url, ended):
        async with AsyncClient(url) as client:
            answers = client.model("m").stream(A)
            assert (await answers.__anext__()).B.nbytes == ANSWER_BYTES
            reader = asyncio.ensure_future(answers.__anext__())
            await asyncio.sleep(0)  # it waits: the server has no further answer
            answers.cancel()
            await asyncio.wait([reader])
            assert isinstance(reader.exception(), StopAsyncIteration)
            assert [answer async for answer in answers] == []
            assert await asyncio.to_thread(ended.wait, 60)

    with streaming(1, stay=True) as (url, _, ended):
        asyncio.run(main(url, ended))


def test_a_stream_that_is_cancelled_before_it_begins_or_with_answers_unread_gives_none():
    async def main(url):
        async with AsyncClient(url) as client:
            model = client.model("m")
            answers = model.stream(A)
            answers.cancel()
            assert [answer async for answer in answers] == []
            answers = model.stream(A)
            async for answer in answers:
                assert answer.B.nbytes == ANSWER_BYTES
                for _ in range(5):  # time for further ones
                    assert await client.live()
                answers.cancel()
                break
            assert [answer async for answer in answers] == []

    with streaming(150) as (url, _, _):
        asyncio.run(main(url))


def test_a_thread_that_reads_a_stream_is_told_the_end_when_another_cancels_it():
    with streaming(1, stay=True) as (url, _, ended), Client(url, connections=1) as client:
        answers = client.model("m").stream(A)
        assert next(answers).B.nbytes == ANSWER_BYTES
        begun = threading.Event()

        def read():
            begun.set()
            return list(answers)

        with futures.ThreadPoolExecutor(1) as thread:
            read_to_end = thread.submit(read)
            assert begun.wait(60)
            answers.cancel()
            assert read_to_end.result(60) == []
        assert ended.wait(60) and client.live()


def test_another_thread_cancels_a_stream_that_a_task_waits_for():
    async def scenario(url):
        async with AsyncClient(url) as client:
            results = client.model("m").stream(A)
            await results.__anext__()
            reader = asyncio.ensure_future(results.__anext__())
            await asyncio.sleep(0)
            await asyncio.to_thread(results.cancel)
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(reader, 60)

    with streaming(1, stay=True) as (url, _, ended):
        asyncio.run(scenario(url))
        assert ended.wait(60)


def test_a_stream_has_one_reader_at_a_time():
    async def scenario(url):
        async with AsyncClient(url) as client:
            results = client.model("m").stream(A)
            await results.__anext__()
            reader = asyncio.ensure_future(results.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(BadRequest, match="another thread or task waits for the next answer"):
                await results.__anext__()
            results.cancel()
            with pytest.raises(StopAsyncIteration):
                await reader

    with streaming(1, stay=True) as (url, _, _):
        asyncio.run(scenario(url))
