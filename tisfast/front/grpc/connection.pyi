import asyncio
from typing import final

from tisfast.front.grpc.shared import GrpcShared

@final
class GrpcConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: GrpcShared) -> None: ...
