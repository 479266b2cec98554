"""Requests made of tensors that are there already, as of steps of ensembles and calls; by reference and copied."""

from __future__ import annotations

import array
from timeit import repeat

from tisfast.native.memory import Arena
from tisfast.wire.compose import ComposeFields, compose_request, input_tensors
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import Tensor, in_block

N = 10_000
ROUNDS = 5
FP32 = 11


def tensor(source: Arena, name: str, count: int) -> Tensor:
    block = source.take_block(4 * count)
    memoryview(block)[:] = array.array("f", bytes(4 * count)).tobytes()
    return in_block(name, FP32, (count,), block, 0, 4 * count)


def report(name: str, call: object) -> None:
    print(f"compose_{name} {min(repeat(call, number=N, repeat=ROUNDS)) / N * 1e9:.1f}")


def main() -> None:
    source, place = Arena("from", 1 << 26, 1 << 25), Arena("to", 1 << 26, 1 << 25)
    one = ModelSignature("m", "1", 0, False, [("I", FP32, (-1,), False, False)], [("O", FP32, (-1,))])
    two = ModelSignature("m", "1", 0, False, [(n, FP32, (-1,), False, False) for n in "IJ"], [("O", FP32, (-1,))])
    fields = ComposeFields()
    large, small = tensor(source, "I", 150_528), tensor(source, "I", 256)
    other = tensor(source, "J", 150_528)
    report("600KB", lambda: compose_request(one, place, [large], fields))
    report("two_of_600KB", lambda: compose_request(two, place, [large, other], fields))
    report("1KB", lambda: compose_request(one, place, [small], fields))
    made = compose_request(two, place, [large, other], fields)
    report("tensors_of_input", lambda: input_tensors(made))


if __name__ == "__main__":
    main()
