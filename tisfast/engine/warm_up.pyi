from collections.abc import Callable
from typing import final

from tisfast.engine.core import Link, Reply
from tisfast.engine.runtime import ModelRuntime
from tisfast.wire.record import InferInput

@final
class Sink(Reply):
    errors: list[str]
    open: int

def rehearsal_of(runtime: ModelRuntime) -> ModelRuntime: ...
def execute_together(
    rehearsal: ModelRuntime, link: Link, inputs: list[InferInput], done: Callable[[], None]
) -> Sink: ...
