import asyncio
from typing import final

from tisfast.front.listener_context import ListenerContext

@final
class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: ListenerContext) -> None: ...
    def drain(self) -> None: ...
    def close_if_stalled(self) -> None: ...
