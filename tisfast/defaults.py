"""Values of flags that are not given, each with its unit and reason.  Layer 0; the flags are in flags.py."""

from __future__ import annotations

from typing import Final

# ---- HTTP front
HTTP_INPUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Default of --http-max-input-size: JSON text, expanded JSON tensors, raw bodies, decompressed bodies."""

# ---- codec processes
CODEC_PROCESSES_MAX: Final = 8
"""Default of --codec-processes where there are as many cores: each reads or writes one large text at a time."""
CODEC_BYTES_MIN: Final = 64 * 1024
"""Default of --codec-bytes-min: text, or what becomes text, of up to so many bytes is dealt with on the event loop."""

# ---- engine
EXECUTION_SECONDS_MAX: Final = 600
"""Default of --execution-timeout-secs: an execution running longer has hung; its worker is killed and restarted."""

# ---- response cache
REDIS_WAIT_MS_MAX: Final = 100
"""Default of --cache-config redis,socket_timeout: ms that a lookup may delay a request."""
REDIS_CONNECT_MS_MAX: Final = 1000
"""Default of redis,connect_timeout: ms that making a connection may take; requests do not wait for it longer than for
an answer."""
REDIS_CONNECTIONS_MAX: Final = 8
"""Default of redis,pool_size: connections, and so commands at one time; further ones wait for one."""

# ---- workers
SPIN_US: Final = 100
"""Default of --spin-us: how long a side that waits yields its core before it sleeps (docs/architecture.md, Sleep and
wake).  Longer than a client in a closed loop thinks, shorter than the gap at 4,000 requests a second."""
STOP_SECONDS_MAX: Final = 30
"""Default of --exit-timeout-secs."""

# ---- remote repositories
STORAGE_DOWNLOADS: Final = 8
"""Default of --storage-downloads: files downloaded at one time.  One connection rarely fills a machine's network."""
