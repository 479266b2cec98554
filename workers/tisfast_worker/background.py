"""An event loop in a thread of its own, for `async def execute` of decoupled models: executions overlap in it."""

import asyncio
import threading

from tisfast_worker import limits


class BackgroundLoop:
    """Runs coroutines until `stop`.  One to an instance, so that the model's clients and locks stay bound to it."""

    def __init__(self):
        """Starts the thread."""
        self._loop = asyncio.new_event_loop()
        self._tasks = set()  # the event loop itself refers to tasks weakly
        self._thread = threading.Thread(target=self._run, name="tisfast-async", daemon=True)
        self._thread.start()

    def start(self, coroutine, failed):
        """Run `coroutine`; `failed(error)` is called in the loop's thread if it raises.  From any thread."""
        self._loop.call_soon_threadsafe(self._start, coroutine, failed)

    def stop(self):
        """Cancel what still runs, end the thread; waits for it, bounded."""
        self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join(limits.STOPPED_FLUSH_SECONDS_MAX)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _start(self, coroutine, failed):
        task = self._loop.create_task(_watched(coroutine, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_all(self):
        for task in self._tasks:
            task.cancel()
        ended = asyncio.gather(*self._tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: self._loop.stop())


async def _watched(coroutine, failed):
    try:
        await coroutine
    except asyncio.CancelledError as error:
        failed(error)
        raise
    except BaseException as error:
        failed(error)
