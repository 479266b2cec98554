"""A client whose calls give futures: a bounded queue, and threads that come as they are needed."""

from __future__ import annotations

import queue
import threading
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
        self._queue: queue.Queue[Work | None] = queue.Queue(max_queue_size or 0)
        self._max_workers = max_workers
        self._wait_s = DEFAULT_INFERENCE_TIMEOUT_S if inference_timeout_s is None else inference_timeout_s
        self._non_blocking = non_blocking
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

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
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
        if not wait:
            self._cancel_waiting()
        for _ in threads:
            self._queue.put(None)
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
        if self._closed:
            raise PyTritonClientClosedError("FutureModelClient is already closed")
        future: Future[Any] = Future()
        self._add_thread()
        try:
            self._queue.put((future, call), block=not self._non_blocking, timeout=self._wait_s)
        except queue.Full:
            raise PyTritonClientQueueFullError(
                f"The queue has {self._queue.maxsize} requests that wait: it is full"
            ) from None
        return future

    def _add_thread(self) -> None:
        """One more, if there is none without work and there may be one."""
        with self._lock:
            count = len(self._threads)
            if self._idle > self._queue.qsize() or (self._max_workers is not None and count >= self._max_workers):
                return
            thread = threading.Thread(target=self._work, name=f"tisfast-futures-{count}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            work = self._queue.get()
            with self._lock:
                self._idle -= 1
            if work is None:
                return
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

    def _cancel_waiting(self) -> None:
        while True:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                return
            if work is not None:
                work[0].cancel()
