from io import BytesIO
from typing import final

@final
class ChunkDecoder:
    done: bool
    chunks: int
    def decode(self, data: bytes, out: BytesIO, most: int) -> int: ...
