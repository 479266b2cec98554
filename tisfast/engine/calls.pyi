from tisfast.engine.core import Reply

class CallPort: ...
class Held: ...

class Calls:
    @property
    def open_calls(self) -> int: ...
    @property
    def held_answers(self) -> int: ...

class Call(Reply):
    number: int
    waits: bool
