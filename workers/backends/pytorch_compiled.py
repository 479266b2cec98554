"""Packages of AOTInductor: machine code, whose call says how many tensors it takes, and neither types nor shapes."""

import contextlib
import json
import os
import re
import tempfile
import warnings
import zipfile

from tisfast_worker import limits
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

_CHECKS = "AOTI_RUNTIME_CHECK_INPUTS"
"""Read once by the code when it runs first: it then looks at types, sizes, strides and bounds of what it is given, and
would else read other memory than the tensor's."""

_THREADS = re.compile(rb"#pragma omp parallel num_threads\((\d{1,6})\)")
_TOO_FEW = re.compile(r"dim value is too small at 0, expected it to be >= 2, but got: 1\b")


class CompiledProgram:
    """One package, its code loaded into this process."""

    what = "the compiled package"
    errors = (RuntimeError, ValueError, TypeError)
    takes_dict = by_name_only = keyed = False
    texts = frozenset()
    tensors = batch_max = None
    in_order = False

    def __init__(self, torch, model, settings, path):
        """Raises FileError."""
        self.files = [path]
        settings.refuse_compile("compiled already")
        os.environ[_CHECKS] = "1"
        files, script = backend_module("pytorch_files"), backend_module("pytorch_script")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                from torch._inductor import aoti_load_package  # noqa: PLC0415 - it imports much that others never need

                with _folder_of_its_own():
                    package = aoti_load_package(path, run_single_threaded=True)
            except Exception as error:  # whatever a damaged package makes it raise
                raise files.FileError(
                    f"model '{model.name}': torch {torch.__version__} cannot load {path}: {script.first_lines(error)}. "
                    "A package runs under the PyTorch, and on the kind of processor, that it was compiled for"
                ) from error
        self._loader, self._torch = package.loader, torch
        self._batched, self._doubles = model.batched, False
        self._refuse_other_device(model, settings, files, path)
        self._read_spec(files, model)
        if model.serves and settings.device is None:
            _warn_of_threads(model, path)

    def _refuse_other_device(self, model, settings, files, path):
        wanted = "cpu" if settings.device is None else "cuda"
        found = self._loader.get_metadata().get("AOTI_DEVICE_KEY", wanted)
        if found != wanted:
            raise files.FileError(
                f"model '{model.name}': {path} was compiled for {found}, and its instance is on {wanted}: set kind: "
                f"KIND_{'GPU' if found == 'cuda' else 'CPU'} in its instance_group, or compile it for {wanted}"
            )

    def _read_spec(self, files, model):
        taken, given = (json.loads(text)[1] if text else None for text in self._loader.get_call_spec())
        if taken is None or given is None:
            raise files.FileError(f"model '{model.name}': its package does not say what it takes: compile it anew")
        positional, named = taken["children_spec"]
        names = []
        for at, child in enumerate(positional["children_spec"]):
            _walk(child, f"ARGS[{at}]", names)
        for key, child in zip(json.loads(named["context"] or "[]"), named["children_spec"]):
            _walk(child, f"KWARGS[{key}]", names)
        results = []
        _walk(given, "RESULT", results)
        self.inputs, self.required = names, set(names)
        self.aliases = {}
        self.output_places = {name: at for at, name in enumerate(results)}
        self.outputs = [f"OUTPUT__{at}" for at in range(len(results))]
        if given["type"] == "builtins.dict" and len(given["children_spec"]) == len(results):
            self.outputs = [str(key) for key in json.loads(given["context"])]
        self.output_places.update({name: at for at, name in enumerate(self.outputs)})

    def settle(self):
        """Nothing is left to do."""

    def run(self, values):
        """The outputs, in their order.

        Compilers take a free dimension for 2 or more, and such a package refuses a batch of one row: it is given the
        row twice.
        """
        if self._doubles and self._is_one_row(values):
            return self._run_twice(values)
        try:
            return self._loader.run(values)
        except RuntimeError as error:
            if not _TOO_FEW.search(str(error)) or not self._is_one_row(values):
                raise
        found = self._run_twice(values)
        self._doubles = True
        return found

    def _is_one_row(self, values):
        return self._batched and all(value.shape[:1] == (1,) for value in values)

    def _run_twice(self, values):
        found = self._loader.run([self._torch.cat([value, value]) for value in values])
        return [each[:1] if each.shape[:1] == (2,) else each for each in found]

    def modules(self):
        """None whose weights could be moved: they are in the code's own memory."""
        return []

    def free(self):
        """Let go of it."""
        self._loader = None


def _walk(spec, name, names):
    children = spec["children_spec"]
    if spec["type"] is None:
        names.append(name)
        return
    keys = json.loads(spec["context"]) if spec["type"] == "builtins.dict" else range(len(children))
    for key, child in zip(keys, children):
        _walk(child, f"{name}[{key}]", names)


@contextlib.contextmanager
def _folder_of_its_own():
    """Have PyTorch unpack a package where nothing is left of it: code that is loaded needs its file no more.

    PyTorch removes the files when the package is let go of, which a process that is killed never does.
    """
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="tisfast-aoti-") as folder:
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TMPDIR")
            if before is not None:
                os.environ["TMPDIR"] = before


def _warn_of_threads(model, path):
    """A package has as many threads as the process that compiled it had, whatever the instance says."""
    most = 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(".cpp") and entry.file_size <= limits.SOURCE_BYTES_MAX:
                most = max([most, *map(int, _THREADS.findall(archive.read(entry)))])
    if most > model.threads:
        share = model.threads
        text = (
            f"{path} of model '{model.name}' was compiled for {most} threads, which each instance starts, where its "
            f"share of the cores is {share}: call torch.set_num_threads({share}) before it is compiled, or set "
            "torch._inductor.config.cpp.dynamic_threads = True there"
        )
        current().log("WARN", text, "pytorch.py", 0, once="threads")
