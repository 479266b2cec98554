from tisfast.engine.asking import Answers
from tisfast.engine.core import Link
from tisfast.engine.runtime import ModelRuntime
from tisfast.wire.record import InferInput

def rehearsal_of(runtime: ModelRuntime) -> ModelRuntime: ...
def ask_instance(rehearsal: ModelRuntime, link: Link, inputs: list[InferInput]) -> list[Answers]: ...
