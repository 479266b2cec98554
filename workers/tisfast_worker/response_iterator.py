"""The responses to one call of a decoupled model, or of any other: what exec(decoupled=True) gives."""


class ResponseIterator:
    """Gives each response once, as it comes, to `for` and to `async for`.

    The last one of a model that ends its stream by the final flag alone has no outputs, as in Triton.
    """

    __slots__ = ("__weakref__", "_calls", "_future", "_waiting")

    def __init__(self, calls, waiting, refused):
        """`refused`: the only response, of a call that could not be made, or None."""
        self._calls, self._waiting, self._future = calls, waiting, None
        if refused is not None:
            waiting.arrived.append(refused)
        if waiting.loop is not None:
            waiting.on_news = self._on_news

    def __iter__(self):
        """Itself."""
        return self

    def __next__(self):
        """The next response, waiting for it."""
        waiting = self._waiting
        if not waiting.arrived:
            self._calls.wait(waiting)
        if waiting.arrived:
            return waiting.arrived.popleft()
        raise StopIteration("Iteration is done for the responses.")

    def __aiter__(self):
        """Itself."""
        return self

    async def __anext__(self):
        """The next response, waiting for it in the event loop that async_exec was called in."""
        waiting = self._waiting
        while not waiting.arrived:
            if waiting.final:
                raise StopAsyncIteration
            if waiting.loop is None:
                raise TypeError("async for: these responses were asked for with exec(); use async_exec(), or for")
            self._calls.settle()
            self._future = waiting.loop.create_future()
            if not waiting.arrived and not waiting.final:  # else its news came before there was a future
                await self._future
        return waiting.arrived.popleft()

    def cancel(self):
        """Ask the model to stop: what it does about it, and whether responses follow, is its affair."""
        self._calls.cancel(self._waiting)

    def _on_news(self):
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)

    def __del__(self):
        """The other responses are not wanted."""
        self._calls.forget(self._waiting)
