"""Run a program under a seccomp filter, as containers do.

    python3 forbidden_calls.py docker[,NAME...] COMMAND...

docker: what Docker's default profile forbids to a container without added capabilities.  That one lists what is
allowed; here is the rest, as far as a server or a library could want it.  NAME: this call, too, as an older profile or
kernel may refuse it.
Needs the standard library only, and no rights.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Final

_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column below, AUDIT_ARCH_*
_DOCKER: Final = {  # call: its number on x86-64 and on arm64
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fsopen": (430, 430), "get_mempolicy": (239, 236),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "kcmp": (312, 272), "keyctl": (250, 219), "kexec_load": (246, 104),
    "mbind": (237, 235), "migrate_pages": (256, 238), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "move_pages": (279, 239), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41), "process_madvise": (440, 440),
    "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218), "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450), "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "settimeofday": (164, 170), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip
_BESIDES: Final = {"eventfd2": (290, 19), "memfd_create": (319, 279), "pidfd_open": (434, 434)}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEWNS and its like
_FAMILIES: Final = (38, 40)  # AF_ALG, AF_VSOCK
# Of linux/bpf_common.h, linux/seccomp.h and linux/prctl.h.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def _program(names: list[str]) -> list[tuple[int, int, int, int]]:
    """The filter's instructions: code, jump if true, jump if false, value."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]  # fmt: skip
    for number, failure in (
        (_CLONE3[column], errno.ENOSYS),  # its flags cannot be seen: libraries then take clone
        *((numbers[column], errno.EPERM) for numbers in _DOCKER.values()),
        *((_BESIDES[name][column], errno.EPERM) for name in names),
    ):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | failure)]
    lines += [
        (_EQUAL, 0, 3, _CLONE[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_ANY_BIT, 0, 5, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_EQUAL, 0, 3, _SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_EQUAL, 2, 0, _FAMILIES[0]),
        (_EQUAL, 1, 0, _FAMILIES[1]), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]  # fmt: skip
    return lines


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def forbid(names: list[str]) -> None:
    """For this process and its children, for good.  Raises OSError where the kernel has no filters."""
    lines = _program(names)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    given = _Filter(len(lines), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(given), 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")


def _must_hold() -> None:
    """Raises AssertionError when the filter forbids less than it is to."""
    libc = ctypes.CDLL(None, use_errno=True)
    column, _ = _ARCHITECTURES[platform.machine()]
    for name in ("io_uring_setup", "userfaultfd", "perf_event_open", "mbind"):
        ctypes.set_errno(0)
        assert libc.syscall(_DOCKER[name][column], -1, 0, 0, 0, 0) == -1, name
        assert ctypes.get_errno() == errno.EPERM, (name, ctypes.get_errno())  # other errors where it is not forbidden


def main(names: list[str], command: list[str]) -> None:
    """Becomes the program."""
    forbid(names)
    _must_hold()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main([name for name in sys.argv[1].split(",") if name != "docker"], sys.argv[2:])
