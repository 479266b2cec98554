from typing import final

class Reply: ...

@final
class InferRequest:
    cancelled: bool
    queued_ns: int
    expires_ns: int
    done: bool

class Clock: ...

class Link:
    instance: str
    up: bool
    inflight: int
