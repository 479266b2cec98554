"""The table of backends: what each is called, and how its models are known.  Layer 2 (config).

How a backend loads and runs a model is its module's affair, in the worker (workers/tisfast_worker/backend.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tisfast.errors import ConfigError

PYTHON: Final = "python"
MODULE_FILE: Final = "backend.py"
"""The file of a backend in --backend-directory: DIRECTORY/NAME/backend.py."""
PYTHON_BASED_FILE: Final = "model.py"
"""The file of a backend that Triton calls Python-based: a TritonPythonModel that serves all models of the backend."""
PYTHON_BASED_ENVIRONMENT: Final = f"pb_exec_env_{PYTHON_BASED_FILE}.tar.gz"
"""Beside it: the environment of those models that name none."""
TRITONS_DIRECTORY: Final = "/opt/tritonserver/backends"
GLOBAL: Final = ""
"""In place of a backend's name: settings of --backend-config that all backends get."""


class Completion(Enum):
    """Which models of a backend are loaded once to complete their configurations."""

    ASKED = "those whose file may have a function for it"
    OPEN = "those whose configuration lacks inputs or outputs"
    ALWAYS = "all"


class BackendInfo(NamedTuple):
    """One backend.

    platforms: names for it in a configuration's `platform`; files: names of model files that stand for it, the first
    one is the default; served: False for what only Triton has; module: the file of one in --backend-directory, "" for
    ours; python_based: that file is a model.py in Triton's manner, which the python backend runs; library: the C
    library of Triton's in its folder; folders: a model file may be a folder; writes_platform: the first platform is
    written into a configuration that leaves it open, as Triton does, of several the one at the file's place; honours:
    fields that no other backend serves (config/unsupported.py); settings: of --backend-config, that one of ours reads
    (`model.settings`); those of --backend-directory get all; imports: a module that its workers share, "" for none:
    their nursery imports it once; runtimes: names in a configuration's `runtime` with which a model has no platform,
    and its backend looks for its file; on_cpu: its instances are on the CPU unless the configuration says another kind;
    companions: names of what its models look for beside their file, whatever that is called (repo/links.py);
    on_gpu: an instance on a GPU takes and leaves tensors there without being asked to, as Triton's does;
    file_parameter: a parameter whose value tells which of the files it is, by value in file_of; pickled: its files can
    run code when they are read, so load calls bring them only where the operator allows it.
    """

    name: str
    platforms: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    completion: Completion = Completion.ALWAYS
    served: bool = False
    module: str = ""
    python_based: bool = False
    library: str = ""
    folders: bool = False
    writes_platform: bool = False
    honours: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    imports: str = ""
    runtimes: frozenset[str] = frozenset()
    on_cpu: bool = False
    on_gpu: bool = False
    pickled: bool = False
    companions: tuple[str, ...] = ()
    file_parameter: str = ""
    file_of: Mapping[str, str] = MappingProxyType({})


_OF_GRAPHS: Final = frozenset({"optimization.graph.level", "optimization.execution_accelerators", "model_operations"})
PROFILE: Final = "instance_group.profile"
_OF_TENSORRT: Final = frozenset({"optimization.cuda.graphs", "optimization.cuda.graph_spec", PROFILE})
_FORESTS: Final = MappingProxyType(
    {
        "xgboost": "xgboost.model", "xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj",
        "lightgbm": "model.txt", "treelite_checkpoint": "checkpoint.tl",
    }
)  # fmt: skip
_BUILT_IN: Final = (
    BackendInfo(PYTHON, (), ("model.py",), Completion.ASKED, served=True),
    BackendInfo(
        "onnxruntime",
        ("onnxruntime_onnx",),
        ("model.onnx",),
        Completion.OPEN,
        served=True,
        folders=True,
        writes_platform=True,
        on_gpu=True,
        honours=_OF_GRAPHS,
    ),
    BackendInfo(
        "tensorrt",
        ("tensorrt_plan",),
        ("model.plan",),
        served=True,
        writes_platform=True,
        on_gpu=True,
        honours=_OF_TENSORRT,
        settings=frozenset({"plugins", "version-compatible", "coalesce-request-input", "execution-policy"}),
    ),
    BackendInfo(
        "pytorch",
        ("pytorch_libtorch", "torch_aoti"),
        ("model.pt", "model.pt2"),
        Completion.OPEN,
        served=True,
        writes_platform=True,
        on_gpu=True,
        imports="torch",
        pickled=True,
        runtimes=frozenset({"model.py"}),
        companions=("sample.npz",),
    ),
    BackendInfo(
        "tensorflow",
        ("tensorflow_savedmodel", "tensorflow_graphdef"),
        ("model.savedmodel", "model.graphdef"),
        served=True,
        folders=True,
        writes_platform=True,
        on_cpu=True,
        imports="tensorflow",
        pickled=True,
        honours=_OF_GRAPHS,
        settings=frozenset({"version", "allow-soft-placement", "gpu-memory-fraction"}),
    ),
    BackendInfo(
        "openvino",
        ("openvino",),
        ("model.xml",),
        Completion.OPEN,
        served=True,
        folders=True,
        on_cpu=True,
        imports="openvino",
    ),
    BackendInfo(
        "fil",
        (),
        tuple(_FORESTS.values()),
        Completion.OPEN,
        served=True,
        on_cpu=True,
        imports="treelite",
        file_parameter="model_type",
        file_of=_FORESTS,
    ),
    BackendInfo(
        "sklearn",
        (),
        ("model.joblib", "model.skops", "model.pkl"),
        Completion.OPEN,
        served=True,
        on_cpu=True,
        imports="sklearn.ensemble",
        pickled=True,
        companions=("*.py",),
    ),
    *map(BackendInfo, ("dali", "vllm", "tensorrtllm", "identity", "repeat", "square")),
)


class Backends:
    """All that a server knows, in the order in which a model's files are looked for."""

    def __init__(
        self,
        backends: Iterable[BackendInfo] = _BUILT_IN,
        directory: str = "",
        settings: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """directory: --backend-directory; settings: what --backend-config says, by the backend's name or GLOBAL."""
        self.directory = directory
        self._settings = settings
        self._by_name = {backend.name: backend for backend in backends}
        self._by_platform = {platform: each for each in self._by_name.values() for platform in each.platforms}
        self._by_file = {file: each for each in self._by_name.values() for file in each.files}

    @property
    def files(self) -> tuple[str, ...]:
        """Names of model files that tell their backend."""
        return tuple(self._by_file)

    @property
    def platforms(self) -> tuple[str, ...]:
        """All platforms."""
        return tuple(self._by_platform)

    @property
    def served(self) -> tuple[str, ...]:
        """Names of those that serve models here."""
        return tuple(each.name for each in self._by_name.values() if each.served)

    @property
    def all(self) -> tuple[BackendInfo, ...]:
        """Each of them."""
        return tuple(self._by_name.values())

    def named(self, name: str) -> BackendInfo | None:
        """The one of this name."""
        return self._by_name.get(name)

    def told_to_workers(self, name: str) -> dict[str, object]:
        """The part of the load message about a model's backend (WIRE.md)."""
        backend = self._by_name[name]
        return {"module": backend.module, "python_based": backend.python_based, "settings": self.settings_of(name)}

    def environment_of(self, name: str) -> str:
        """The archive that lies beside a Python-based backend, "" where there is none.  Raises OSError."""
        backend = self._by_name.get(name)
        if backend is None or not backend.python_based:
            return ""
        packed = Path(backend.module).with_name(PYTHON_BASED_ENVIRONMENT)
        return str(packed) if packed.exists() else ""

    def settings_of(self, name: str) -> dict[str, str]:
        """A backend's settings of --backend-config: its own ones, and those for all behind them."""
        return {**self._settings.get(GLOBAL, {}), **self._settings.get(name, {})}

    def imports_of(self, name: str) -> str:
        """The module that the workers of one share, "" for none."""
        return self._by_name[name].imports

    def of_platform(self, platform: str) -> BackendInfo | None:
        """The one that a `platform` means."""
        return self._by_platform.get(platform)

    def of_file(self, file: str) -> BackendInfo | None:
        """The one that a model file of this name belongs to."""
        return self._by_file.get(file)

    def beside(self, directory: Path) -> Backends:
        """These, and those of --backend-directory, which come first.  Raises ConfigError where it cannot be read."""
        try:
            found = [_in_folder(path) for path in sorted(directory.iterdir())]
        except OSError as error:
            raise ConfigError(
                f"--backend-directory={directory} cannot be read: {error.strerror}", key="backend-directory",
                hint=f"name a folder that holds NAME/{MODULE_FILE} or NAME/{PYTHON_BASED_FILE} for each backend",
            ) from error  # fmt: skip
        own = [each for each in found if each is not None and not (each.library and self._serves(each.name))]
        names = {each.name for each in own}
        if PYTHON in names:
            raise ConfigError(
                f"--backend-directory={directory} has a backend '{PYTHON}', which tisfast has itself",
                key="backend-directory", hint="give it another name",
            )  # fmt: skip
        rest = (each for each in self._by_name.values() if each.name not in names)
        return Backends([*own, *rest], str(directory.absolute()), self._settings)

    def told(self, settings: Mapping[str, Mapping[str, str]]) -> Backends:
        """These, with what --backend-config says."""
        return Backends(self._by_name.values(), self.directory, settings)

    def with_library(self, name: str, folders: Iterable[Path]) -> Backends:
        """These, and a C library of Triton's in a model's own folders, which takes a name that nothing here serves.

        Raises OSError.
        """
        paths = [] if not name or self._serves(name) else [folder / library_of(name) for folder in folders]
        found = [BackendInfo(name, library=str(path)) for path in paths if path.exists()]
        if not found:
            return self
        rest = (each for each in self._by_name.values() if each.name != name)
        return Backends([found[0], *rest], self.directory, self._settings)

    def _serves(self, name: str) -> bool:
        known = self._by_name.get(name)
        return known is not None and known.served


def library_of(name: str) -> str:
    """The file name of a backend's C library."""
    return f"libtriton_{name}.so"


def _in_folder(folder: Path) -> BackendInfo | None:
    """The backend in one folder of --backend-directory; None where there is none.  Raises OSError.

    Triton's installation has a C library in most of them, and beside that of PyTorch a model.py, too.
    """
    name, library = folder.name, folder / library_of(folder.name)
    module = folder / MODULE_FILE
    if module.exists():
        return BackendInfo(name, served=True, module=str(module.resolve()))
    module, c_library = folder / PYTHON_BASED_FILE, str(library) if library.exists() else ""
    if module.exists():
        return BackendInfo(
            name, completion=Completion.ASKED, served=True, module=str(module.absolute()), python_based=True,
            library=c_library,
        )  # fmt: skip
    return BackendInfo(name, library=c_library) if c_library else None


BUILT_IN: Final = Backends()
