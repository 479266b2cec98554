from typing import final

@final
class ChunkDecoder:
    done: bool
    chunks: int
    def decode(self, data: bytes, out: bytearray, most: int) -> int: ...
