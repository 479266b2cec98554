"""The names that a backend of your own uses ('tisfast docs backends').

The same classes that workers use, so a backend is tested like any module.  Workers need no tisfast for it: where a
model's environment has none, they bring this module along (workers/tisfast_worker/public.py).
"""

from __future__ import annotations

from tisfast_worker.public import ArrayBackend, Options, Refusal, RequestBackend, framework

__all__ = ["ArrayBackend", "Options", "Refusal", "RequestBackend", "framework"]
