"""What `import tisfast.client` loads."""

from __future__ import annotations

import subprocess
import sys

CODE = "import sys, tisfast.client; print(*sys.modules)"
NEVER = {"uvloop", "asyncio", "google", "zmq", "msgpack", "ssl", "xxhash", "grpc", "tritonclient", "http"}
LAYERS = {"client", "native", "wire"}
BELOW = {"descriptors", "dtypes", "errors", "limits", "tuning", "types"}


def test_the_client_is_light():
    modules = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    assert not NEVER & {module.partition(".")[0] for module in modules}
    ours = {module.split(".")[1] for module in modules if module.startswith("tisfast.")}
    assert ours == LAYERS | BELOW
