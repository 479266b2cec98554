"""Send the held-out images to a running server, and look at what the `digits` model gets wrong.

    make serve                            # in one terminal: tisfast on examples/models
    python examples/digits_client.py      # in another

Images go out one by one over several connections at once, so that the server's dynamic batcher has something to join.
The images come in four sizes, since the model accepts any; images of one size share a batch.  Needs tritonclient[http];
with pillow installed, the mistakes are also drawn to digits_mistakes.png.  Exit status 1 under 95 % correct.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tritonclient.http import InferenceServerClient, InferenceServerException, InferInput

EXAMPLES = Path(__file__).resolve().parent
ACCURACY_LEAST = 0.95
MISTAKES_SHOWN = 6
SHADES = " .:-=+*#%@"


class Reading(NamedTuple):
    """What the model read in one image."""

    digit: int
    probability: float


def enlarged(image: np.ndarray, scale: int) -> np.ndarray:
    """The scan so many times as large, on a sheet with a margin: as it might come from another scanner."""
    return np.pad(np.kron(image, np.ones((scale, scale), np.uint8)), ((scale, 2), (0, 3 * scale)))


def read(client: InferenceServerClient, image: np.ndarray) -> Reading:
    """One request with one image."""
    tensor = InferInput("IMAGE", [1, *image.shape], "UINT8")
    tensor.set_data_from_numpy(image[None])
    answer = client.infer("digits", [tensor])
    digit = int(answer.as_numpy("DIGIT")[0, 0])
    return Reading(digit, float(answer.as_numpy("PROBABILITIES")[0, digit]))


def read_all(url: str, images: list[np.ndarray], connections: int) -> list[Reading]:
    """All images, over so many connections at a time; one client for each, since a client is not shared by threads."""
    clients = [InferenceServerClient(url) for _ in range(connections)]

    def share(k: int) -> list[Reading]:
        return [read(clients[k], image) for image in images[k::connections]]

    try:
        with ThreadPoolExecutor(connections) as pool:
            parts = list(pool.map(share, range(connections)))
    finally:
        for client in clients:
            client.close()
    return [parts[i % connections][i // connections] for i in range(len(images))]


def batches(client: InferenceServerClient) -> dict[int, int]:
    """Executions by batch size since the server started; wherever Triton's protocol tells it, so do we."""
    model = client.get_inference_statistics("digits")["model_stats"][0]
    return {int(b["batch_size"]): int(b["compute_infer"]["count"]) for b in model.get("batch_stats", [])}


def show_batches(before: dict[int, int], after: dict[int, int]) -> None:
    """How many executions there were of each size; a bar for each."""
    counts = {size: count - before.get(size, 0) for size, count in sorted(after.items()) if count > before.get(size, 0)}
    images, executions = sum(size * count for size, count in counts.items()), sum(counts.values())
    print(f"{images} images in {executions} executions: {images / max(executions, 1):.1f} images each")
    for size, count in counts.items():
        print(f"  batch of {size:2}: {count:4} {'#' * max(1, round(60 * count / executions))}")


def draw(image: np.ndarray) -> list[str]:
    """An image as lines of text, two letters for a pixel."""
    return ["".join(SHADES[int(p) * (len(SHADES) - 1) // 255] * 2 for p in row) for row in image]


def show_mistakes(images: np.ndarray, digits: np.ndarray, readings: list[Reading]) -> None:
    """The mistakes in the terminal, and all of them in a picture when pillow is there."""
    wrong = [i for i, reading in enumerate(readings) if reading.digit != digits[i]]
    for i in wrong[:MISTAKES_SHOWN]:
        print(f"\nimage {i}: a {digits[i]}, read as {readings[i].digit} (sure to {readings[i].probability:.0%})")
        print("\n".join(draw(images[i])))
    if len(wrong) > MISTAKES_SHOWN:
        print(f"\n... and {len(wrong) - MISTAKES_SHOWN} more")
    if wrong:
        write_picture(images[wrong], [f"{digits[i]} as {readings[i].digit}" for i in wrong])


def write_picture(images: np.ndarray, captions: list[str]) -> None:
    """digits_mistakes.png in the current folder: eight images a row, each with its caption."""
    try:
        from PIL import Image, ImageDraw  # noqa: PLC0415  (optional)
    except ImportError:
        print("(install pillow to have the mistakes as a picture)")
        return
    width, height = 80, 96
    sheet = Image.new("L", (8 * width, -(-len(images) // 8) * height), 255)
    pen = ImageDraw.Draw(sheet)
    for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x, y = i % 8 * width, i // 8 * height
        sheet.paste(Image.fromarray(255 - np.kron(image, np.ones((8, 8), np.uint8))), (x + 8, y + 8))
        pen.text((x + 18, y + 78), caption, fill=0)
    sheet.save("digits_mistakes.png")
    print("all mistakes are drawn in digits_mistakes.png")


def main() -> int:
    """Send, compare, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="localhost:8000", help="host and port of the server (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=16, help="requests in flight (default: %(default)s)")
    options = parser.parse_args()
    with np.load(EXAMPLES / "digits_heldout.npz") as arrays:
        images, digits = arrays["images"], arrays["digits"]
    try:
        with InferenceServerClient(options.url) as client:
            before, began = batches(client), time.perf_counter()
            sheets = [enlarged(image, 1 + 4 * i // len(images)) for i, image in enumerate(images)]
            readings = read_all(options.url, sheets, options.connections)
            seconds = time.perf_counter() - began
            show_batches(before, batches(client))
    except (InferenceServerException, OSError) as e:
        print(f"error: no answer from http://{options.url}: {e}", file=sys.stderr)
        return 1
    correct = sum(reading.digit == digit for reading, digit in zip(readings, digits, strict=True))
    print(
        f"{correct} of {len(images)} correct: {correct / len(images):.1%}, {len(images) / seconds:.0f} images a second"
    )
    show_mistakes(images, digits, readings)
    return 0 if correct >= ACCURACY_LEAST * len(images) else 1


if __name__ == "__main__":
    sys.exit(main())
