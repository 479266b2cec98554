"""The end of a client of futures, whatever it is asked meanwhile."""

import threading

import pytest

from tests.pytriton.served import ONE, A, add, http, model, start
from tests.waiting import wait_until
from tisfast.pytriton.client import FuturesModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientClosedError

SECONDS_MAX = 30
ROUNDS = 20
SUBMITTERS = 4


@pytest.fixture(scope="module")
def release():
    return threading.Event()


@pytest.fixture(scope="module")
def url(release, tmp_path_factory):
    def slow(requests):
        release.wait()
        return add(requests)

    triton = start(
        model("add", add, [A]), model("slow", slow, [A]), workspace=tmp_path_factory.mktemp("pytriton") / "work"
    )
    yield http(triton)
    release.set()
    triton.stop()


def ends(function):
    """Whether it returns, in a thread, without anything that would let it."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    return not thread.is_alive()


def test_an_end_that_does_not_wait_waits_for_no_call_and_for_no_room(url):
    client = FuturesModelClient(url, "slow", max_workers=4, max_queue_size=1)
    running = []
    for _ in range(4):
        running.append(client.infer_sample(ONE))
        wait_until(running[-1].running)
    waiting = client.infer_sample(ONE)
    asked = []

    def ask():
        with pytest.raises(PyTritonClientClosedError):
            client.infer_sample(ONE)  # no room comes before the end
        asked.append(True)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert ends(lambda: client.close(wait=False))
    asking.join(SECONDS_MAX)
    assert asked == [True]
    assert waiting.cancelled()


@pytest.mark.parametrize("wait", [True, False])
def test_whatever_is_asked_while_it_ends_is_answered_or_refused(url, wait):
    for _ in range(ROUNDS):
        client = FuturesModelClient(url, "add", max_workers=SUBMITTERS, max_queue_size=1)
        futures, begun = [], threading.Event()

        def ask(client=client, futures=futures, begun=begun):
            try:
                while True:
                    futures.append(client.infer_sample(ONE))
                    begun.set()
            except PyTritonClientClosedError:
                pass

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        assert begun.wait(SECONDS_MAX)
        assert ends(lambda client=client: client.close(wait=wait))
        for thread in threads:
            thread.join(SECONDS_MAX)
        assert not any(thread.is_alive() for thread in threads)
        for future in futures:
            wait_until(future.done)
