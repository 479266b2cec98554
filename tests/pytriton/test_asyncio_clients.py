"""The clients that are awaited, over both protocols."""

import asyncio

import numpy as np
import pytest

from tests.pytriton.served import DECOUPLED, ONE, A, add, count_up, fail, fail_after_one, grpc, http, model, start
from tests.unused_ports import closed_port
from tisfast.pytriton.client import AsyncioDecoupledModelClient, AsyncioModelClient
from tisfast.pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_wait_for_model_status_loaded,
    asyncio_wait_for_server_ready,
    create_asyncio_client,
)
from tisfast.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from tisfast.pytriton.model_config import ModelConfig

TWO = np.array([[1], [2]], np.float32)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    triton = start(
        model("add", add),
        model("fail", fail),
        model("single", add, config=ModelConfig(batching=False)),
        model("count", count_up, [A], config=DECOUPLED),
        model("fail_after_one", fail_after_one, [A], config=DECOUPLED),
        workspace=tmp_path_factory.mktemp("pytriton") / "work",
    )
    yield triton
    triton.stop()


@pytest.fixture(params=[http, grpc])
def url(running, request):
    return request.param(running)


def test_samples_batches_and_many_at_once(url):
    async def go():
        async with AsyncioModelClient(url, "add") as client:
            one = await client.infer_sample(ONE)
            two = await client.infer_batch(a=TWO, b=TWO)
            many = await asyncio.gather(*(client.infer_sample(np.array([at], np.float32)) for at in range(20)))
            return one["o"].tolist(), two["o"].tolist(), [float(each["o"][0]) for each in many]

    assert asyncio.run(go()) == ([1], [[2], [4]], list(range(20)))


def test_the_configuration_is_awaited_and_shared(url):
    async def go():
        async with AsyncioModelClient(url, "add", lazy_init=False) as client:
            config = await client.model_config
            async with AsyncioModelClient.from_existing_client(client) as other:
                assert await other.model_config is config
                return (await other.infer_sample(ONE))["o"].tolist()

    assert asyncio.run(go()) == [1]


@pytest.mark.parametrize(
    ("name", "call", "error", "message"),
    [
        ("add", lambda client: client.infer_sample(), PyTritonClientValueError, "Provide input data"),
        ("add", lambda client: client.infer_sample([1.0]), PyTritonClientValueError, "Input 'a' is a list"),
        ("add", lambda client: client.infer_sample(ONE, parameters=[]), PyTritonClientValueError, "parameters"),
        ("fail", lambda client: client.infer_sample(ONE), PyTritonClientInferenceServerError, "division by zero"),
        ("count", lambda client: client.infer_sample(ONE), PyTritonClientInferenceServerError, "decoupled"),
        ("single", lambda client: client.infer_batch(TWO), PyTritonClientModelDoesntSupportBatchingError, "batching"),
    ],
)
def test_what_goes_wrong(url, name, call, error, message):
    async def go():
        async with AsyncioModelClient(url, name) as client:
            await call(client)

    with pytest.raises(error, match=message):
        asyncio.run(go())


def test_what_is_not_there_is_a_timeout(url):
    async def go(url, name):
        async with AsyncioModelClient(url, name, init_timeout_s=0.3) as client:
            await client.infer_sample(ONE)

    with pytest.raises(PyTritonClientTimeoutError, match="Timeout while waiting for model absent/<latest>"):
        asyncio.run(go(url, "absent"))
    with pytest.raises(PyTritonClientTimeoutError, match="Timeout while waiting for model add/<latest>"):
        asyncio.run(go(f"{url[:4]}://127.0.0.1:{closed_port()}", "add"))


def test_a_closed_client_says_so(url):
    async def go():
        client = AsyncioModelClient(url, "add")
        await client.close()
        with pytest.raises(PyTritonClientClosedError):
            await client.infer_sample(ONE)

    asyncio.run(go())


def test_who_waits_for_a_client_that_is_closed_is_told_so(url):
    async def go():
        client = AsyncioModelClient(url, "absent")
        waiting = [asyncio.ensure_future(client.infer_sample(ONE)) for _ in range(2)]
        while client._asking is None:
            await asyncio.sleep(0)
        await client.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(each) for each in asyncio.run(go())] == [PyTritonClientClosedError] * 2


def test_a_model_that_need_not_be_ready_is_not_waited_for(url):
    async def go():
        async with AsyncioModelClient(url, "absent", ensure_model_is_ready=False) as client:
            await client.infer_sample(ONE)

    with pytest.raises(PyTritonClientInferenceServerError, match="absent"):
        asyncio.run(go())


def test_what_a_client_may_not_ask_is_an_error_at_once(closed_to_strangers):
    async def go(name):
        async with AsyncioModelClient(http(closed_to_strangers), name) as client:
            await client.infer_sample(ONE)

    with pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
        asyncio.run(go("add"))


def test_helpers_are_awaited(url):
    async def go():
        async with create_asyncio_client(url) as client:
            await asyncio_wait_for_server_ready(client)
            await asyncio_wait_for_model_status_loaded(client, "add")
            return await asyncio_get_model_config(client, "add")

    assert asyncio.run(go()).model_name == "add"


def test_answers_come_as_an_asynchronous_generator(running):
    async def go():
        async with AsyncioDecoupledModelClient(grpc(running), "count") as client:
            samples = [each["o"].tolist() async for each in client.infer_sample(ONE)]
            batches = [each["o"].tolist() async for each in client.infer_batch(TWO)]
            return samples, batches

    assert asyncio.run(go()) == ([[1], [2], [3]], [[[1], [2]], [[2], [3]], [[3], [4]]])


def test_an_error_comes_after_what_was_answered(running):
    async def go():
        answers = []
        async with AsyncioDecoupledModelClient(grpc(running), "fail_after_one") as client:
            with pytest.raises(PyTritonClientInferenceServerError, match="after one"):
                async for each in client.infer_sample(ONE):
                    answers.append(each["o"].tolist())
        return answers

    assert asyncio.run(go()) == [[1]]


def test_streams_need_grpc(running):
    async def go():
        async with AsyncioDecoupledModelClient(http(running), "count") as client:
            async for _ in client.infer_sample(ONE):
                pass

    with pytest.raises(PyTritonClientValueError, match="grpc"):
        asyncio.run(go())


class ClientOfAnAnswerThatComesWithACancel:
    """`ready` answers in the moment in which who waits for it is cancelled."""

    def __init__(self):
        self.waiting = None

    async def live(self):
        return True

    async def ready(self):
        asyncio.get_running_loop().call_soon(self.waiting.cancel)
        return True


def test_a_cancel_that_comes_with_the_answer_is_not_lost():
    async def cancelled():
        client = ClientOfAnAnswerThatComesWithACancel()
        client.waiting = asyncio.ensure_future(asyncio_wait_for_server_ready(client))
        with pytest.raises(asyncio.CancelledError):
            await client.waiting

    asyncio.run(cancelled())
