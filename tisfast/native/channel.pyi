from typing import final

def abi_version() -> int: ...

@final
class Bell:
    fd: int
    eventfd: int

@final
class Channel:
    fd: int
    nbytes: int
    def request_stop(self) -> None: ...
