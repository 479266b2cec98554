import asyncio
from typing import final

from tisfast.front.grpc.listener_context import GrpcListenerContext

@final
class GrpcConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: GrpcListenerContext) -> None: ...
