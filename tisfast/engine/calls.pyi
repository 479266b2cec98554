from tisfast.engine.core import AnswerSink

class CallPort: ...
class RetainedInputs: ...

class Calls:
    @property
    def open_calls(self) -> int: ...
    @property
    def held_answers(self) -> int: ...

class Call(AnswerSink):
    number: int
    waits: bool
