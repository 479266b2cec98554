import asyncio
from typing import final

from tisfast.front.shared import FrontShared

@final
class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: FrontShared) -> None: ...
    def drain(self) -> None: ...
    def close_if_stalled(self) -> None: ...
