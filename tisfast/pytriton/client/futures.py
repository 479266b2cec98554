"""A client whose calls give futures: a bounded queue, and threads that come as they are needed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from tisfast.pytriton.client.base import DEFAULT_INFERENCE_TIMEOUT_S, Array, Values
from tisfast.pytriton.client.client import ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientQueueFullError
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

Kind = TypeVar("Kind", bound="FuturesModelClient")
Work: TypeAlias = tuple["Future[Any]", Callable[[], Any]]


class FuturesModelClient:
    """Asks a model many times at once."""

    def __init__(  # noqa: PLR0913 - PyTriton's
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int | None = 128,
        max_queue_size: int | None = 128,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        access_token: str | None = None,
    ) -> None:
        """See ModelClient.  Raises ValueError.

        max_workers, max_queue_size: requests that are asked and that wait at one time; None is any number.
        non_blocking: a full queue is an error at once, else after inference_timeout_s.
        """
        for name, number in (("max_workers", max_workers), ("max_queue_size", max_queue_size)):
            if number is not None and number <= 0:
                raise ValueError(f"{name} must be greater than 0, it is {number}")
        self._client = ModelClient(
            url,
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
            access_token=access_token,
        )
        self._waiting: deque[Work] = deque()
        self._max_waiting, self._max_workers = max_queue_size, max_workers
        self._wait_s = DEFAULT_INFERENCE_TIMEOUT_S if inference_timeout_s is None else inference_timeout_s
        self._non_blocking = non_blocking
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads that have no work, or have not begun yet
        self._closed = False
        lock = threading.Lock()  # of all above
        self._work_came, self._room_came = threading.Condition(lock), threading.Condition(lock)

    def __enter__(self: Kind) -> Kind:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close(wait=True)

    def close(self, wait: bool = True) -> None:
        """wait: until all that was asked is answered; else what waits is cancelled."""
        with self._work_came:
            if self._closed:
                return
            self._closed = True
            dropped = [] if wait else list(self._waiting)
            if not wait:
                self._waiting.clear()
            threads = list(self._threads)
            self._work_came.notify_all()
            self._room_came.notify_all()
        for future, _ in dropped:
            future.cancel()
        if wait:
            for thread in threads:
                thread.join()
        self._client.close()

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """See ModelClient."""
        return self._submit(lambda: self._client.wait_for_model(timeout_s))

    def model_config(self) -> Future[TritonModelConfig]:
        """See ModelClient."""
        return self._submit(lambda: self._client.model_config)

    def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Future[dict[str, Array]]:
        """See ModelClient.  Raises PyTritonClientQueueFullError, PyTritonClientClosedError."""
        return self._submit(
            lambda: self._client.infer_sample(*inputs, parameters=parameters, headers=headers, **named_inputs)
        )

    def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Future[dict[str, Array]]:
        """See ModelClient.  Raises PyTritonClientQueueFullError, PyTritonClientClosedError."""
        return self._submit(
            lambda: self._client.infer_batch(*inputs, parameters=parameters, headers=headers, **named_inputs)
        )

    # ---- parts

    def _submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._room_came:
            if not self._non_blocking:
                self._room_came.wait_for(lambda: self._closed or self._has_room(), self._wait_s)
            if self._closed:
                raise PyTritonClientClosedError("FutureModelClient is already closed")
            if not self._has_room():
                raise PyTritonClientQueueFullError(f"The queue has {self._max_waiting} requests that wait: it is full")
            self._add_thread()
            self._waiting.append((future, call))
            self._work_came.notify()
        return future

    def _has_room(self) -> bool:
        return self._max_waiting is None or len(self._waiting) < self._max_waiting

    def _add_thread(self) -> None:
        """One more, if all have work, or will have, and there may be one."""
        count = len(self._threads)
        if self._idle > len(self._waiting) or (self._max_workers is not None and count >= self._max_workers):
            return
        thread = threading.Thread(target=self._work, name=f"tisfast-futures-{count}", daemon=True)
        thread.start()
        self._threads.append(thread)
        self._idle += 1

    def _work(self) -> None:
        while (work := self._next()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            with self._work_came:
                self._idle += 1

    def _next(self) -> Work | None:
        """None when the client is closed and nothing waits."""
        with self._work_came:
            self._work_came.wait_for(lambda: self._waiting or self._closed)
            self._idle -= 1
            if not self._waiting:
                return None
            self._room_came.notify()
            return self._waiting.popleft()
