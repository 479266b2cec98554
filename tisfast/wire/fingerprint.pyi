from typing import Any

from tisfast.wire.record import InferInput

def fingerprint(request: InferInput, hash: Any) -> bytes | None: ...
