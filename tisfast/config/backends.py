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
"""Of a backend in --backend-directory: DIRECTORY/NAME/backend.py."""


class Completion(Enum):
    """Which models of a backend are loaded once to complete their configurations."""

    ASKED = "those whose file may have a function for it"
    OPEN = "those whose configuration lacks inputs or outputs"
    ALWAYS = "all"


class Backend(NamedTuple):
    """One backend.

    platforms: names for it in a configuration's `platform`; files: names of model files that stand for it, the first
    one is the default; served: False for what only Triton has; module: the file of one in --backend-directory, "" for
    ours; folders: a model file may be a folder; writes_platform: the first platform is written into a configuration
    that leaves it open, as Triton does; honours: fields that no other backend serves (config/unsupported.py); on_cpu:
    its instances are on the CPU unless the configuration says another kind; file_parameter: a parameter whose value
    tells which of the files it is, by value in file_of; pickled: its files can run code when they are read, so load
    calls bring them only where the operator allows it.
    """

    name: str
    platforms: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    completion: Completion = Completion.ALWAYS
    served: bool = False
    module: str = ""
    folders: bool = False
    writes_platform: bool = False
    honours: frozenset[str] = frozenset()
    on_cpu: bool = False
    pickled: bool = False
    file_parameter: str = ""
    file_of: Mapping[str, str] = MappingProxyType({})

    def model_file(self, value: str, present: Iterable[str]) -> str:
        """The model file of a configuration that names none.

        value: of the parameter that tells it, "" for none; present: which of `files` there are.
        """
        return self.file_of.get(value) or next(iter(present), self.files[0])


_OF_ONNX: Final = frozenset({"optimization.graph.level", "optimization.execution_accelerators", "model_operations"})
_FORESTS: Final = MappingProxyType(
    {
        "xgboost": "xgboost.model", "xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj",
        "lightgbm": "model.txt", "treelite_checkpoint": "checkpoint.tl",
    }
)  # fmt: skip
_BUILT_IN: Final = (
    Backend(PYTHON, (), ("model.py",), Completion.ASKED, served=True),
    Backend(
        "onnxruntime", ("onnxruntime_onnx",), ("model.onnx",), Completion.OPEN, served=True, folders=True,
        writes_platform=True, honours=_OF_ONNX,
    ),
    Backend("tensorrt", ("tensorrt_plan",), ("model.plan",)),
    Backend("pytorch", ("pytorch_libtorch", "torch_aoti"), ("model.pt", "model.pt2")),
    Backend("tensorflow", ("tensorflow_savedmodel", "tensorflow_graphdef"), ("model.savedmodel", "model.graphdef")),
    Backend("openvino", ("openvino",), ("model.xml",)),
    Backend(
        "fil", (), tuple(_FORESTS.values()), Completion.OPEN, served=True, on_cpu=True,
        file_parameter="model_type", file_of=_FORESTS,
    ),
    Backend(
        "sklearn", (), ("model.joblib", "model.skops", "model.pkl"), Completion.OPEN, served=True, on_cpu=True,
        pickled=True,
    ),
    *map(Backend, ("dali", "vllm", "tensorrtllm", "identity", "repeat", "square")),
)


class Backends:
    """All that a server knows, in the order in which a model's files are looked for."""

    def __init__(self, backends: Iterable[Backend] = _BUILT_IN) -> None:
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

    def named(self, name: str) -> Backend | None:
        """The one of this name."""
        return self._by_name.get(name)

    def module_of(self, name: str) -> str:
        """The file of one in --backend-directory, "" for ours."""
        return self._by_name[name].module

    def of_platform(self, platform: str) -> Backend | None:
        """The one that a `platform` means."""
        return self._by_platform.get(platform)

    def of_file(self, file: str) -> Backend | None:
        """The one that a model file of this name belongs to."""
        return self._by_file.get(file)

    def beside(self, directory: Path) -> Backends:
        """These, and those of --backend-directory, which come first.  Raises ConfigError where it cannot be read."""
        try:
            names = sorted(path.name for path in directory.iterdir() if (path / MODULE_FILE).exists())
        except OSError as error:
            raise ConfigError(
                f"--backend-directory={directory} cannot be read: {error.strerror}", key="backend-directory",
                hint=f"name a folder that holds NAME/{MODULE_FILE} for each backend",
            ) from error  # fmt: skip
        if PYTHON in names:
            raise ConfigError(
                f"--backend-directory={directory} has a backend '{PYTHON}', which tisfast has itself",
                key="backend-directory", hint="give it another name",
            )  # fmt: skip
        own = [Backend(name, served=True, module=str((directory / name / MODULE_FILE).resolve())) for name in names]
        return Backends([*own, *(each for each in self._by_name.values() if each.name not in names)])


BUILT_IN: Final = Backends()
TRITONS_DIRECTORY: Final = "/opt/tritonserver/backends"


def read_backends(directory: str, notices: list[str]) -> Backends:
    """Of --backend-directory, "" for none.  Raises ConfigError."""
    if not directory:
        return BUILT_IN
    if directory == TRITONS_DIRECTORY and not Path(directory).exists():
        notices.append(f"--backend-directory={directory} has no effect here, because there is no such folder")
        return BUILT_IN
    return BUILT_IN.beside(Path(directory))
