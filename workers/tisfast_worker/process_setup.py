"""Settings that an instance makes right after the fork, because a fork cannot carry them.

- Thread counts: OpenBLAS reads its variable when numpy is imported, which happened in the nursery, with one thread, so
  that the fork found no other thread.  It is told again through its own call, and so is libgomp where a framework that
  the nursery has imported brings it.  Else libgomp, MKL and numexpr read theirs when first loaded, which is after the
  fork: variables are enough.
- Random state: numpy seeds its global generator at import; unseeded, all instances would draw the same numbers.
  `random` reseeds itself after a fork.
- glibc's malloc settings are inherited, but the nursery has no use for them.
"""

import contextlib
import ctypes
import os
import sys

from tisfast_worker import limits

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
_THREAD_CALLS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads",
    "omp_set_num_threads",
)
OOM_SCORE_LOADING, OOM_SCORE_SERVING = 400, 200
"""Added to the kernel's badness of a worker (thousandths of the memory): when memory runs out, the one that is loading
goes first, then another one, and the server, which has all models' requests, last."""
_OOM_SCORE_MAX = 1000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def set_variables(variables, threads):
    """Set the model's variables and, where neither it nor the user's environment says, the thread counts."""
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(threads))
    os.environ.update(variables)


def settle_numpy(threads, blas):
    """Give an already imported numpy this process's own threads and random state.  blas: `thread_setters`."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    if "numpy.random" in sys.modules:  # numpy 2 imports it when it is first used: 4 MB that few models need
        numpy.random.seed()
    said = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
    wanted = int(said) if said.isdigit() and said != "0" else threads  # OpenBLAS, too, ignores what is no number
    if wanted == 1:
        return  # as the nursery left it
    for set_threads in blas:
        set_threads(wanted)


def thread_setters():
    """The functions that set the number of threads of each OpenBLAS and OpenMP that this process has loaded.

    Looked for in the nursery, where little but numpy is loaded: in each child it would cost 5 ms.
    """
    found = []
    for path in _loaded_pools():
        library = ctypes.CDLL(path)
        found += [getattr(library, name) for name in _THREAD_CALLS if hasattr(library, name)][:1]
    return found


def keep_memory_warm():
    """Have malloc keep what large arrays give back: a page touched for the first time costs more than its copy."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; musl has no such setting
        libc.mallopt(_M_MMAP_THRESHOLD, limits.MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, limits.TRIM_THRESHOLD_BYTES)


def offer_to_oom_killer(more):
    """Make this process so much likelier to be killed than its nursery, in whose place it was until now."""
    with contextlib.suppress(OSError):  # a kernel or a container that does not let us
        with open(f"/proc/{os.getppid()}/oom_score_adj") as inherited:
            score = int(inherited.read())
        with open("/proc/self/oom_score_adj", "w") as own:
            own.write(str(min(_OOM_SCORE_MAX, score + more)))


def name_process(instance):
    """Show the instance's name in ps and top (15 bytes of it)."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(instance)


def _loaded_pools():
    with open("/proc/self/maps") as maps:
        return sorted({line.split(None, 5)[5].strip() for line in maps if _is_pool(line)})


def _is_pool(line):
    return line.count("/") > 0 and ("openblas" in line or "libgomp" in line)
