"""Where free functions find what is served: in the thread, in its coroutines, else in the whole process."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tisfast_worker import logger, pb_utils_functions, serving_context
from tisfast_worker.background import BackgroundLoop


@pytest.fixture
def process():
    """The process's own, put back afterwards."""
    before = serving_context.current()
    yield before
    serving_context.become(before)


def serving(name: str) -> serving_context.ServingContext:
    made = serving_context.ServingContext()
    made.instance, made.model_dir = name, f"/{name}"
    made.lines = []
    made.log = lambda level, text, *_: made.lines.append(text)
    return made


def in_thread(work):
    """What `work` returns in a thread that has entered nothing."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_all_threads_of_a_worker_are_its_instances(process):
    serving_context.become(serving("only"))
    assert pb_utils_functions.get_model_dir() == in_thread(pb_utils_functions.get_model_dir) == "/only"


def test_a_thread_that_has_entered_one_is_of_no_other(process):
    one, two = serving("one"), serving("two")

    def speak(each):
        serving_context.enter(each)
        logger.Logger.log_info(f"of {each.instance}")
        return pb_utils_functions.get_model_dir()

    assert [in_thread(lambda each=each: speak(each)) for each in (one, two)] == ["/one", "/two"]
    assert (one.lines, two.lines) == (["of one"], ["of two"])
    assert in_thread(pb_utils_functions.get_model_dir) == "" == process.model_dir, "others are of nobody"


def test_coroutines_are_of_the_thread_that_starts_them(process):
    background, found, done = BackgroundLoop(), [], threading.Event()

    async def look():
        await asyncio.sleep(0)
        found.append(pb_utils_functions.get_model_dir())
        if len(found) == 2:
            done.set()

    def start(name):
        serving_context.enter(serving(name))
        background.start(look(), found.append)

    for name in ("one", "two"):
        in_thread(lambda name=name: start(name))
    assert done.wait(60)
    background.stop()
    assert sorted(found) == ["/one", "/two"]


def test_a_child_process_of_the_model_is_told_where_to_ask(process):
    one = serving("one")
    one.calls = one.ask = object()
    one.leave_child()
    serving_context.become(one)
    with pytest.raises(Exception, match="this process was forked from instance one"):
        pb_utils_functions.load_model("m")
