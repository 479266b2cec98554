"""The block allocator: take and give, warm, as the front does once per request."""

from __future__ import annotations

from timeit import timeit

from tisfast.native.memory import Arena

N = 200_000


def main() -> None:
    arena = Arena("micro", 1 << 30, 1 << 29)
    for nbytes in (700, 600 * 1024, 16 << 20):
        ns = timeit(lambda nbytes=nbytes: arena.take_block(nbytes), number=N) / N * 1e9
        print(f"arena_take_give_{nbytes} {ns:.1f}")
    held = [arena.take_block(700) for _ in range(1000)]
    print(f"arena_take_give_among_1000 {timeit(lambda: arena.take_block(700), number=N) / N * 1e9:.1f}")
    del held


if __name__ == "__main__":
    main()
