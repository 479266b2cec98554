"""Build of tisfast: Cython modules over csrc, the plain C library that workers load, and the protobuf descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
CSRC = ["csrc/tf_shm.c", "csrc/tf_ring.c", "csrc/tf_arena.c"]
WORKER_LIBRARY = "libtisfast_shm.so"
DEBUG = os.environ.get("TISFAST_DEBUG") == "1"  # counters and assertions on: `make debug`
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
OPTIMISE = ["-O2", "-g0", "-std=c11", "-fvisibility=hidden"]
DEFINES = [] if DEBUG else [("NDEBUG", None)]


def extensions() -> list[Extension]:
    """One extension per .pyx.  Only `native` compiles csrc in (it is stateless, so twice does no harm)."""
    found = []
    for path in sorted(Path("tisfast").rglob("*.pyx")):
        name = ".".join(path.with_suffix("").parts)
        found.append(
            Extension(
                name,
                [str(path), *(CSRC if name.startswith("tisfast.native.") else [])],
                include_dirs=["csrc"],
                define_macros=DEFINES,
                extra_compile_args=[*OPTIMISE, "-Wno-unreachable-code"],
                extra_link_args=["-Wl,-s"],
                depends=[str(p) for p in Path("csrc").glob("*.h")],
            )
        )
    return found


class BuildExt(build_ext):
    """Also builds the workers' C library, without Python.h, beside the worker runtime."""

    def run(self) -> None:
        """Extensions first, then the library."""
        super().run()
        folder = Path("workers") if self.inplace else Path(self.build_lib, "tisfast", "_workers")
        folder.mkdir(parents=True, exist_ok=True)
        if (
            not self.inplace
        ):  # `import triton_python_backend_utils` works wherever tisfast is installed: for models' own tests
            Path(self.build_lib, "tisfast_workers.pth").write_text("tisfast/_workers\n")
        target = folder / WORKER_LIBRARY
        sources = [*CSRC, *(str(p) for p in Path("csrc").glob("*.h"))]
        if target.exists() and not self.force and target.stat().st_mtime > max(os.stat(s).st_mtime for s in sources):
            return
        compiler = os.environ.get("CC", "cc").split()
        debug = [] if DEBUG else ["-DNDEBUG"]
        self.spawn([*compiler, *OPTIMISE, *WARNINGS, *debug, "-fPIC", "-shared", "-Wl,-s", "-o", str(target), *CSRC])


class BuildProto(Command):
    """Compile tisfast/wire/proto/*.proto to one descriptor set: no generated code, so any protobuf runtime reads it."""

    description = "compile .proto files to descriptor sets"
    user_options: list[tuple[str, str, str]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        """Setuptools' protocol."""
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        """Setuptools' protocol."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Write triton.desc into the source tree (package data picks it up) and into the build tree."""
        protos = sorted((ROOT / "tisfast/wire/proto").glob("*.proto"))
        if not protos:
            return
        for folder in (ROOT, Path(self.build_lib or ROOT)):
            target = folder / "tisfast/wire/proto/triton.desc"
            target.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protos[0].parent}"]
            subprocess.run([*command, f"--descriptor_set_out={target}", *map(str, protos)], check=True)


class Build(build):
    """`build` with the descriptors first."""

    sub_commands = [("build_proto", None), *build.sub_commands]


setup(
    ext_modules=cythonize(
        extensions(),
        nthreads=int(os.environ.get("TISFAST_JOBS", "0") or 0),
        compiler_directives={
            "language_level": "3",
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
            "auto_pickle": False,
        },
    ),
    package_dir={"tisfast._workers": "workers"},
    cmdclass={"build_ext": BuildExt, "build_proto": BuildProto, "build": Build},
)
