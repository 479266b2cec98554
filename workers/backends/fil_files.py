"""Files of forests: what a file is by its first bytes, and how treelite reads it."""

import re

from tisfast_worker import limits
from tisfast_worker.failure import Refusal

LEGACY, JSON, UBJ, LIGHTGBM, CHECKPOINT = "xgboost", "xgboost_json", "xgboost_ubj", "lightgbm", "treelite_checkpoint"
PICKLE, SKOPS, NOTHING = "pickle", "skops", ""
NAMES = {
    LEGACY: "XGBoost's old binary format", JSON: "XGBoost's JSON", UBJ: "XGBoost's UBJSON", LIGHTGBM: "LightGBM's text",
    CHECKPOINT: "a treelite checkpoint", PICKLE: "a pickle", SKOPS: "a zip archive", NOTHING: "empty",
}  # fmt: skip
_BEGINNINGS = {b"\x80": PICKLE, b"PK\x03\x04": SKOPS, b"tree": LIGHTGBM}
_CONVERT = (
    "a model of scikit-learn is served by backend 'sklearn', or becomes a checkpoint with "
    "treelite.sklearn.import_model(model).serialize('checkpoint.tl')"
)
_CHECKPOINT_MAJORS = (3, 4)
_ERROR_CHARS_MAX = 300
_LENGTHS = "its lengths are those of no file"
_SIZES = re.compile(r"bad_alloc|basic_string|vector")  # what C++ says of a size that cannot be


class ForestError(Refusal):
    """A file is no forest that can be served; the text says why."""


def kind_of(path):
    """What a file holds, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(limits.SNIFF_BYTES)
    if not head:
        return NOTHING
    if head[:1] == b"{":
        return JSON if head[1:].lstrip()[:1] in (b'"', b"}", b"") else UBJ
    for beginning, kind in _BEGINNINGS.items():
        if head.startswith(beginning):
            return kind
    numbers = [int.from_bytes(head[at : at + 4], "little") for at in (0, 4, 8)]
    if numbers[0] in _CHECKPOINT_MAJORS and max(numbers) < 100:
        return CHECKPOINT
    return LEGACY


def agreed_kind(path, said):
    """What the file holds, where that is what the configuration says; "" says nothing.  Raises ForestError."""
    found, name = kind_of(path), path
    if found in (PICKLE, SKOPS):
        raise ForestError(f"{name} is {NAMES[found]}, which the fil backend does not read: {_CONVERT}")
    if found == NOTHING:
        raise ForestError(f"{name} is empty: write the model anew")
    # XGBoost 3.1 and later write UBJSON where the name has no ending that they know.
    if said in ("", found) or (said == LEGACY and found in (JSON, UBJ)):
        return found
    raise ForestError(
        f"parameter 'model_type' is '{said}', and {name} holds {NAMES[found]}: write model_type: '{found}', or name "
        "another file with default_model_filename"
    )


def read(treelite, path, kind, allow_unknown_field):
    """The treelite.Model of a file.  Raises ForestError."""
    try:
        return _read(treelite, path, kind, allow_unknown_field)
    except ForestError:
        raise
    except (treelite.TreeliteError, ValueError, UnicodeError) as error:
        # Of noise, which this format cannot tell from a model, the first numbers are sizes: no shortage of memory.
        said = _LENGTHS if kind == LEGACY and _SIZES.search(str(error)) else _short(str(error))
        raise _broken(path, kind, said) from None


def _read(treelite, path, kind, allow_unknown_field):
    frontend = treelite.frontend
    if kind == LEGACY:
        return frontend.load_xgboost_model_legacy_binary(path)
    if kind == LIGHTGBM:
        _check_whole_text(path)
        return frontend.load_lightgbm_model(path)
    if kind == CHECKPOINT:
        return _read_checkpoint(treelite, path)
    choice = "json" if kind == JSON else "ubjson"
    return frontend.load_xgboost_model(path, format_choice=choice, allow_unknown_field=allow_unknown_field)


def _check_whole_text(path):
    """LightGBM's text ends its trees with a line of its own; without it, treelite takes those that there are."""
    with open(path, "rb") as file:
        text = file.read()
    if b"\nversion=v" in text and b"\nend of trees" not in text:
        raise _broken(path, LIGHTGBM, "it has no line 'end of trees'")


def _read_checkpoint(treelite, path):
    """treelite makes something of a checkpoint that is cut off: what it reads is to be as long as the file."""
    with open(path, "rb") as file:
        content = file.read()
    model = treelite.Model.deserialize_bytes(content)
    ours = model.serialize_bytes()
    same_version = ours[:12] == content[:12]
    if same_version and len(ours) != len(content):
        raise _broken(path, CHECKPOINT, f"it has {len(content)} bytes, and its trees take {len(ours)}")
    return model


def _broken(path, kind, reason):
    return ForestError(
        f"{path} is no whole file of {NAMES[kind]} that this treelite reads: {reason}: write it anew"
    )


def _short(text):
    """treelite repeats what it read, and says where in its own source it stood."""
    line = " ".join(text.split("\n")[0].split())
    _, mark, said = line.partition("Check failed: ")
    return (said if mark else line)[:_ERROR_CHARS_MAX] or "it cannot be parsed"
