"""Two sums and three countdowns at a time, asked of the models of examples/sequences.

    tisfast serve --model-repository examples/sequences
    python examples/sequences_client.py                      needs nothing but the standard library
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor


def ask(url: str, model: str, name: str, datatype: str, value: int, **parameters: object) -> list[int]:
    """The numbers of the one output."""
    tensor = {"name": name, "datatype": datatype, "shape": [1, 1], "data": [value]}
    body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    with urllib.request.urlopen(f"http://{url}/v2/models/{model}/infer", body, timeout=30) as answer:
        return json.load(answer)["outputs"][0]["data"]


def running_sum(url: str, sequence: int, numbers: list[int]) -> list[int]:
    """One sequence, one request after the other."""
    return [
        ask(url, "running_sum", "NUMBER", "INT64", number, sequence_id=sequence,
            sequence_start=place == 0, sequence_end=place == len(numbers) - 1)[0]
        for place, number in enumerate(numbers)
    ]  # fmt: skip


def main() -> int:
    """Exit status 1 when an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="localhost:8000", metavar="HOST:PORT")
    url = parser.parse_args().url
    with ThreadPoolExecutor() as pool:
        sums = list(pool.map(lambda job: running_sum(url, *job), [(1, [1, 2, 3, 4]), (2, [10, 20, 30])]))
        rounds = list(pool.map(lambda steps: ask(url, "countdown", "STEPS", "INT32", steps), (100, 200, 300)))
    for total in sums:
        print("sums so far:", *total)
    for seen in rounds:
        print(f"{len(seen)} executions, with {sum(seen) / len(seen):.1f} requests in a batch")
    return int(sums != [[1, 3, 6, 10], [10, 30, 60]] or [len(seen) for seen in rounds] != [100, 200, 300])


if __name__ == "__main__":
    sys.exit(main())
