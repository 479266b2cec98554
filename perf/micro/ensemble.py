"""What an ensemble costs the engine: a request through a chain of three models, with links that do nothing.

Each step is a composed request, a submission, an answer and its tensors; all tensors are small, so they are copied.
"""

from __future__ import annotations

import struct
import time

from tisfast.config.ensemble_join import join as join_models
from tisfast.config.model_config import finish, parse, signature_fields
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.engine.ensemble_graph import EnsembleGraph
from tisfast.engine.ensemble_runtime import EnsembleRuntime
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, submit
from tisfast.native.memory import Arena, Block
from tisfast.wire.compose import compose_request
from tisfast.wire.joined_answer import join
from tisfast.wire.record import Answer, InferInput
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import in_block

N = 20_000
FP32 = 11
FOUR = struct.pack("<4f", 1, 2, 3, 4)
MODELS = ("a", "b", "c")
STEP = """step {{ model_name: "{model}" model_version: -1
  input_map {{ key: "I" value: "{taken}" }} output_map {{ key: "O" value: "{made}" }} }}"""
NAMES = ("I", "t1", "t2", "O")
STEPS = "".join(STEP.format(model=model, taken=NAMES[i], made=NAMES[i + 1]) for i, model in enumerate(MODELS))
CONFIG = f"""platform: "ensemble"
input {{ name: "I" data_type: TYPE_FP32 dims: 4 }}
output {{ name: "O" data_type: TYPE_FP32 dims: 4 }}
ensemble_scheduling {{ {STEPS} }}"""


def served(name: str, clock: FakeClock) -> tuple[ModelRuntime, FakeLink]:
    """One model and its only instance."""
    signature = ModelSignature(name, "1", 0, False, [("I", FP32, (4,), False, False)], [("O", FP32, (4,))])
    runtime = ModelRuntime(signature, Arena(name, 1 << 20, 1 << 20), SchedulerSettings(), clock, {})
    link = FakeLink(f"{name}_0", runtime, clock)
    runtime.add_link(link)
    runtime.set_state(True, "")
    return runtime, link


def answer(request: InferInput, block: Block) -> Answer:
    """What a worker's answer comes to."""
    return join(request, [in_block("O", FP32, (4,), block, 0, 16)])


def main() -> None:
    clock, registry = FakeClock(), Registry()
    models = [served(name, clock) for name in MODELS]
    for runtime, _ in models:
        registry.add(runtime)
    config = finish(parse(CONFIG, "e/config.pbtxt"), "e")
    joined = join_models(config, [runtime.signature for runtime, _ in models])
    graph = EnsembleGraph(joined.config, joined.levels, [False] * len(MODELS))
    signature = ModelSignature("e", "1", 0, False, *signature_fields(joined.config))
    ensemble = EnsembleRuntime(signature, Arena("e", 1 << 20, 1 << 20), graph, clock, {}, registry.resolve)
    reply, block = FakeSink([]), Arena("out", 1 << 20, 1 << 20).take_block(16)
    memoryview(block)[:] = FOUR
    request = compose_request(signature, ensemble.arena, [in_block("I", FP32, (4,), block, 0, 16)])
    start = time.perf_counter_ns()
    for _ in range(N):
        submit(ensemble, request, reply)
        for _, link in models:
            link.execute(answer=lambda step: answer(step, block))
    print(f"ensemble_of_three_steps {(time.perf_counter_ns() - start) / N:.1f}")


if __name__ == "__main__":
    main()
