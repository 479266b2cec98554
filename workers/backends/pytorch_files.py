"""Which file a model is in, and what it is: known by what lies in the archive, whatever its name.

A program has:

    what            for people
    inputs          names of its arguments, in the order in which they are passed
    required        those of them that have no value of their own
    by_name_only    whether they cannot be passed by place
    in_order        names say nothing, as with Triton's `runtime: "model.py"`
    takes_dict      all inputs are items of one dictionary
    texts           names of arguments that take strings; None: not known
    aliases         places of arguments by other names
    outputs         names of what it returns; None: only a run tells
    output_places   places of outputs by names
    keyed           it returns names with its outputs
    tensors         (types and dims of the inputs, of the outputs); None: the file does not say
    batch_max       the most rows that it takes; None: any number
    errors          what `run` raises for requests that it cannot take
    run(values)     what it returns for arguments in their order
    modules()       modules of PyTorch whose weights can lie elsewhere
    files           what their weights depend on
"""

import os
import zipfile

from tisfast_worker.failure import Refusal
from tisfast_worker.serve import backend_module

FILES = ("model.pt", "model.pt2")
COMPILED, EXPORTED, SCRIPT, PICKLE = "compiled", "exported", "script", "pickle"
_MAGIC_BYTES = 8


class FileError(Refusal):
    """A file that cannot be served; the text says why."""


def open_program(torch, model, settings):
    """The program.  Raises FileError, and what loading it raises."""
    if settings.by_module:
        return backend_module("pytorch_module").open_model(torch, model, settings)
    path = model_path(model)
    kind = kind_of(path)
    if kind == SCRIPT:
        return backend_module("pytorch_script").ScriptProgram(torch, model, settings, path)
    if kind == EXPORTED:
        return backend_module("pytorch_export").ExportedProgram(torch, model, settings, path)
    if kind == COMPILED:
        return backend_module("pytorch_compiled").CompiledProgram(torch, model, settings, path)
    raise FileError(
        f"{path} of model '{model.name}' was written by torch.save: it holds weights or a pickled object, and no "
        "program. Export the model with torch.export.save or torch.jit.script(...).save, or serve its class with "
        'runtime: "model.py"'
    )


def model_path(model):
    """Where the model's file is.  Raises FileError."""
    names = [model.file] if model.file else FILES
    for name in names:
        path = os.path.join(model.version_dir, name)
        if os.path.isfile(path):
            return path
    path = os.path.join(model.version_dir, names[0])
    raise FileError(f"unable to find '{path}' for model instance '{model.instance}'")


def kind_of(path):
    """What the file is.  Raises FileError for what PyTorch did not write, or not wholly."""
    try:
        with zipfile.ZipFile(path) as archive:
            full = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return _kind_of_plain(path)
    names = [name.partition("/")[2] for name in full]
    if any(name.startswith("data/aotinductor/") for name in names):
        return COMPILED
    if any(name.startswith("models/") for name in names) or "serialized_exported_program.json" in full:
        return EXPORTED
    if "constants.pkl" in names:
        return SCRIPT
    if "data.pkl" in names:
        return PICKLE
    raise FileError(f"{path} is a zip archive, but none of PyTorch's: it has {', '.join(full[:3]) or 'nothing'}")


def _kind_of_plain(path):
    with open(path, "rb") as file:
        head = file.read(_MAGIC_BYTES)
    if head[:1] == b"\x80":  # how pickles begin
        return PICKLE
    if head[:2] == b"PK":
        raise FileError(f"{path} is cut off or damaged: it begins as a PyTorch archive, and its end is missing")
    raise FileError(f"{path} was not written by PyTorch, or is damaged: its first bytes are {head!r}")
