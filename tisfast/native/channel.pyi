from typing import final

@final
class Bell:
    fd: int
    eventfd: int

@final
class Channel:
    fd: int
    nbytes: int
    def request_stop(self) -> None: ...
