"""Build of tisfast: Cython modules over csrc, the plain C library that workers load, and the protobuf descriptors."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
from Cython.Build import cythonize
from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

os.chdir(Path(__file__).resolve().parent)  # all paths below are relative to the project
sys.path.insert(0, os.getcwd())
from backend import DESCRIPTOR_SET, PROTO, is_described, protobuf_compiler  # noqa: E402 - it lies beside this file

NATIVE_CSRC = ["csrc/tf_shm.c", "csrc/tf_ring.c", "csrc/tf_arena.c", "csrc/tf_cell.c"]
WORKER_CSRC = [*NATIVE_CSRC, "csrc/tf_output.c", "csrc/tf_window.c"]  # linked twice: see csrc_calls.pyx
WORKER_LIBRARY = "libtisfast_shm.so"
WORKER_PACKAGE = "tisfast_worker"
WORKER_CALLS = f"{WORKER_PACKAGE}.csrc_calls"
WORKER_ARRAYS = f"{WORKER_PACKAGE}.arrays"
WORKERS = os.path.join("tisfast", "_workers")  # where workers/ is installed
FOR_MODELS = ("foreign_request", "request", "response", "tensor")  # of it: what models, and their tests, know
DEBUG = os.environ.get("TISFAST_DEBUG") == "1"  # bounds checks and assertions on: `make debug`
COVERAGE = os.environ.get("TISFAST_COVERAGE") == "1"  # Cython's lines can be traced: `make coverage`
# None takes another's C for its own.
QUICK = os.environ.get("TISFAST_QUICK") == "1"  # compiled in a third of the time, for tests that run once
GENERATED_C = "build/cython-coverage" if COVERAGE else "build/cython-debug" if DEBUG else "build/cython"
# Names that begin so are in the source tree for tests, and not in a wheel.
ONLY_TESTS = ("tisfast.engine.testing", "tisfast.native.testing")
MODEL_MODULE = "triton_python_backend_utils"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
HTTP2_MODULE = "tisfast.native.http2"
HTTP2_NEEDED = (
    "tisfast's gRPC front is built on nghttp2, and its headers are not on this system.  Install them with one of\n"
    "  apt-get install libnghttp2-dev pkg-config\n"
    "  dnf install libnghttp2-devel pkgconf-pkg-config\n"
    "  apk add nghttp2-dev pkgconf"
)
HTTP2_SPACES = "nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation"  # since 1.50
HTTP2_BOUNDS = ("nghttp2_option_set_stream_reset_rate_limit", "nghttp2_option_set_max_continuations")
SANITIZE = os.environ.get("TISFAST_SANITIZE") == "1"  # AddressSanitizer and UBSan in all modules: `make asan`
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
# Nothing unwinds C here, and tables for it would be a twentieth of what is installed of ours.
LEVEL = "-O0" if COVERAGE or QUICK else "-O2"
PLAIN = [LEVEL, "-g0", "-std=c11", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables"]
OPTIMISE = ["-O1", "-g1", "-std=c11", "-fvisibility=hidden", *SANITIZERS] if SANITIZE else PLAIN
# Each module else has three more pages of padding, 1 MB of what is installed: constants and code lie in one mapping.
LINK = SANITIZERS if SANITIZE else ["-Wl,-s", "-Wl,-z,noseparate-code"]
# On no small request's path: they are made small, a third of each, as the installation has a bound.
SMALL = {
    "tisfast.bench.histogram", "tisfast.codec.job_runner", "tisfast.engine.asking", "tisfast.engine.calls",
    "tisfast.engine.ensemble_graph", "tisfast.engine.ensemble_scope", "tisfast.engine.rate_limiter",
    "tisfast.engine.response_cache", "tisfast.engine.sequence", "tisfast.engine.sequence_slots",
    "tisfast.front.grpc.listener_context", "tisfast.front.listener_context", "tisfast.native.memory",
    "tisfast.native.region", "tisfast.native.timed_receive", "tisfast.processes.shares", "tisfast.wire.call_record",
    "tisfast.wire.client_head", "tisfast.wire.client_request", "tisfast.wire.client_response", "tisfast.wire.generate",
    "tisfast.wire.plain_values",
}  # fmt: skip
DEFINES = [] if DEBUG else [("NDEBUG", None)]
if COVERAGE:
    DEFINES += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
OURS = {
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    **({"linetrace": True} if COVERAGE else {}),
}
AS_INTERPRETED = {"nonecheck": True, "annotation_typing": False}  # and Cython's defaults: what Python checks is checked
JOBS_MAX = 16  # where nobody says how many: each takes up to 300 MB
PROGRESS = 10  # modules between two lines of it
DEPENDS = ["setup.py", *(str(path) for path in Path("csrc").glob("*.h"))]  # the flags are here


def jobs() -> int:
    """How many modules are translated, and then compiled, at one time."""
    said = os.environ.get("TISFAST_JOBS") or str(min(len(os.sched_getaffinity(0)), JOBS_MAX))
    if not said.isdecimal() or int(said) < 1:
        sys.exit(f"TISFAST_JOBS is {said!r}, and is to be how many modules are built at one time: 1 or more")
    return int(said)


def say(text: str) -> None:
    """A line of what the build does: with `pip install -v`, and with make."""
    print(f"tisfast: {text}", flush=True)


def linked_csrc(name: str) -> list[str]:
    """What of csrc a module is linked with."""
    if name == WORKER_CALLS:
        return WORKER_CSRC
    return NATIVE_CSRC if name.startswith("tisfast.native.") and name != HTTP2_MODULE else []


def pkg_config(*arguments: str) -> list[str]:
    """What pkg-config prints of nghttp2.  Exits with the command that installs it when there is none."""
    command = [os.environ.get("PKG_CONFIG", "pkg-config"), *arguments, "libnghttp2"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        sys.exit(HTTP2_NEEDED)


def http2() -> dict[str, Any]:
    """How to compile and link nghttp2.

    A library without bounds against rapid reset (CVE-2023-44487) and CONTINUATION floods (CVE-2024-28182) is refused:
    both came with fixes that distributions took back into older versions, so the header is asked, not the version.
    """
    folders = [flag[2:] for flag in pkg_config("--cflags-only-I")]
    headers = [Path(folder, "nghttp2/nghttp2.h") for folder in (*folders, *pkg_config("--variable=includedir"))]
    text = next((path.read_text() for path in headers if path.exists()), None)
    if text is None:
        sys.exit(HTTP2_NEEDED)
    missing = [name for name in HTTP2_BOUNDS if name not in text]
    if missing:
        version = " ".join(pkg_config("--modversion"))
        sys.exit(f"nghttp2 {version} lacks {' and '.join(missing)}, which bound known attacks; take 1.61 or newer")
    libraries = [flag[2:] for flag in pkg_config("--libs-only-L")]
    macros = [("TISFAST_NGHTTP2_CHECKS_SPACES", None)] if HTTP2_SPACES in text else []
    return {"include_dirs": folders, "library_dirs": libraries, "libraries": ["nghttp2"], "define_macros": macros}


def extensions() -> list[Extension]:
    """One extension per .pyx."""
    found = []
    linked = http2()
    for path in sorted(Path("tisfast").rglob("*.pyx")):
        name = ".".join(path.with_suffix("").parts)
        more = linked if name == HTTP2_MODULE else {"include_dirs": linked["include_dirs"]}  # others read its header
        found.append(
            Extension(
                name,
                [str(path)],
                include_dirs=["csrc", *more.get("include_dirs", [])],
                library_dirs=more.get("library_dirs", []),
                libraries=more.get("libraries", []),
                define_macros=[*DEFINES, *more.get("define_macros", [])],
                extra_compile_args=[*OPTIMISE, *(["-Os"] if name in SMALL else []), "-Wno-unreachable-code"],
                extra_link_args=LINK,
                depends=[*DEPENDS, *linked_csrc(name)],
            )
        )
    return found


def worker_extensions() -> list[Extension]:
    """The hot modules of the worker runtime, compiled for the server's own Python: those with a .pxd beside them.

    Other Pythons run the same .py files: an interpreter takes a compiled module only if the tag in its name is its own.
    Builds for debugging and for coverage have none, so that their tests are tests of the interpreted form.
    """
    folder = Path("workers", WORKER_PACKAGE)
    sources = {f"{WORKER_PACKAGE}.{path.stem}": path.with_suffix(".py") for path in sorted(folder.glob("*.pxd"))}
    sources[WORKER_CALLS] = folder / "csrc_calls.pyx"
    sources[WORKER_ARRAYS] = folder / "arrays.pyx"
    return [
        Extension(
            name,
            [str(source)],
            include_dirs=["csrc", *([numpy.get_include()] if name == WORKER_ARRAYS else [])],
            # Types from specs are open to change, as interpreted classes are: who tests a model patches them.
            define_macros=[*DEFINES, *([("CYTHON_USE_TYPE_SPECS", "1")] if source.stem in FOR_MODELS else [])],
            extra_compile_args=[*OPTIMISE, "-Wno-unreachable-code"],
            extra_link_args=LINK,
            depends=[*DEPENDS, *linked_csrc(name)],
        )
        for name, source in sources.items()
    ]


class BuildExt(build_ext):
    """Also builds the workers' C library, without Python.h, beside the worker runtime."""

    def get_ext_filename(self, fullname: str) -> str:
        """The worker runtime is a package of its own in a worker, and lies in ours."""
        filename = super().get_ext_filename(fullname)
        return os.path.join(WORKERS, filename) if fullname.startswith(f"{WORKER_PACKAGE}.") else filename

    def get_ext_fullpath(self, ext_name: str) -> str:
        """The same in the build tree, which setuptools makes of the parts of the name."""
        if not ext_name.startswith(f"{WORKER_PACKAGE}."):
            return super().get_ext_fullpath(ext_name)
        return os.path.join(self.build_lib, self.get_ext_filename(ext_name))

    def finalize_options(self) -> None:
        """Setuptools compiles one module after the other when nobody asks for more."""
        super().finalize_options()
        self.parallel = self.parallel or jobs()

    def run(self) -> None:
        """Extensions first, then the library."""
        if not self.inplace:
            self.extensions = [extension for extension in self.extensions if not extension.name.startswith(ONLY_TESTS)]
        self._began, self._built = time.monotonic(), itertools.count(1)
        at_once = f"{jobs()} at a time (TISFAST_JOBS=N changes that)"
        say(f"translating {len(self.extensions)} modules to C and compiling them, {at_once}")
        translate(self.extensions)
        say(f"translated to C after {time.monotonic() - self._began:.0f} s")
        super().run()
        if COVERAGE:  # Cython's plugin of coverage.py looks for it beside the modules
            shutil.copytree(GENERATED_C, ".", dirs_exist_ok=True)
        folder = Path("workers") if self.inplace else Path(self.build_lib, WORKERS)
        folder.mkdir(parents=True, exist_ok=True)
        if not self.inplace:
            self._let_models_be_tested(Path(self.build_lib), WORKERS)
        elif self.editable_mode:  # what `pip install -e` installs is this folder, and in it links to the sources
            installed = Path(self.get_finalized_command("install").install_lib)
            self._let_models_be_tested(installed, str(Path("workers").resolve()))
        self._build_library(folder / WORKER_LIBRARY)

    def build_extensions(self) -> None:
        """csrc first, once: of extensions built side by side one could link an object that another still writes."""
        compile_c = self.compiler.compile
        flags = {"include_dirs": ["csrc"], "macros": DEFINES, "extra_postargs": OPTIMISE}
        objects = dict(zip(WORKER_CSRC, compile_c(WORKER_CSRC, output_dir=self.build_temp, **flags), strict=True))
        for extension in self.extensions:
            extension.extra_objects = [objects[source] for source in linked_csrc(extension.name)]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """One module, in a thread beside others."""
        super().build_extension(ext)
        built, of = next(self._built), len(self.extensions)
        if built % PROGRESS == 0 or built == of:
            say(f"compiled {built} of {of} modules after {time.monotonic() - self._began:.0f} s")

    def _let_models_be_tested(self, folder: Path, workers: str) -> None:
        """Wherever tisfast is installed, `import triton_python_backend_utils` works, and type checkers know it."""
        (folder / "tisfast_workers.pth").write_text(workers + "\n")
        stubs = folder / f"{MODEL_MODULE}-stubs"  # PEP 561: a single module has no py.typed of its own
        stubs.mkdir(exist_ok=True)
        shutil.copyfile(f"workers/{MODEL_MODULE}.pyi", stubs / "__init__.pyi")

    def _build_library(self, target: Path) -> None:
        sources = [*WORKER_CSRC, *(str(p) for p in Path("csrc").glob("*.h"))]
        if target.exists() and not self.force and target.stat().st_mtime > max(os.stat(s).st_mtime for s in sources):
            return
        compiler = os.environ.get("CC", "cc").split()
        # A warning stops who works on it, and nobody who installs it with a compiler that we have never seen.
        flags = [*PLAIN, *WARNINGS, *(["-Werror"] if self.inplace else []), *([] if DEBUG else ["-DNDEBUG"])]
        self.spawn([*compiler, *flags, "-fPIC", "-shared", "-Wl,-s", "-o", str(target), *WORKER_CSRC])


class BuildProto(Command):
    """Compile the .proto files to one descriptor set: no generated code, so any protobuf runtime reads it."""

    description = "compile .proto files to descriptor sets"
    user_options: list[tuple[str, str, str]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        """Setuptools' protocol."""

    def finalize_options(self) -> None:
        """Setuptools' protocol."""

    def run(self) -> None:
        """Write triton.desc beside its sources, from where it is installed as they are; a source archive brings it."""
        if is_described():
            return
        protos = sorted(map(str, PROTO.glob("*.proto")))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", "--include_imports"]
        command += [f"--descriptor_set_out={DESCRIPTOR_SET}", *protos]  # imports come before who imports them
        if subprocess.run(command, check=False).returncode:
            needed = " ".join(f"'{requirement}'" for requirement in protobuf_compiler())
            sys.exit(f"{DESCRIPTOR_SET} cannot be made of its .proto files.  That takes: pip install {needed}")


class Sdist(sdist):
    """A source archive with the descriptor set, so that who builds from it needs no protobuf compiler."""

    def run(self) -> None:
        """After the descriptor set is made."""
        self.run_command("build_proto")
        super().run()


class Build(build):
    """`build` with the descriptors first, and nothing of an earlier build."""

    sub_commands = [("build_proto", None), *build.sub_commands]

    def run(self) -> None:
        """Without what setuptools would leave of modules that were since removed or built otherwise."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def translate(modules: list[Extension]) -> None:
    """Put C in the place of the modules' Cython.

    cythonize() starts processes, and from CPython 3.14 on they are no forks: each of them imports this file again.
    """
    for directives, chosen in (
        (OURS, [module for module in modules if not module.name.startswith(f"{WORKER_PACKAGE}.")]),
        (AS_INTERPRETED, [module for module in modules if module.name.startswith(f"{WORKER_PACKAGE}.")]),
    ):
        translated = cythonize(
            chosen,
            build_dir=GENERATED_C,
            include_path=["workers"],
            quiet=True,
            nthreads=jobs() if jobs() > 1 else 0,
            compiler_directives={"language_level": "3", "auto_pickle": False, **directives},
        )
        sources = {module.name: module.sources for module in translated}
        for module in chosen:
            module.sources = sources[module.name]


def main() -> None:
    """What `python setup.py` does."""
    setup(
        ext_modules=[*extensions(), *([] if DEBUG or COVERAGE else worker_extensions())],
        package_dir={
            "tisfast._docs": "docs",
            "tisfast._workers": "workers",
            WORKER_PACKAGE: f"workers/{WORKER_PACKAGE}",
        },
        cmdclass={"build_ext": BuildExt, "build_proto": BuildProto, "build": Build, "sdist": Sdist},
    )


if __name__ == "__main__":
    main()
