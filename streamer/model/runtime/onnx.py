"""Nothing in; the module onnxruntime out, its telemetry off: the only place that imports it.

From 1.31 on it looks up mobile.events.data.microsoft.com, and keeps a device id under the user's
cache, from the moment that it is imported. Only the environment turns that off:
`disable_telemetry_events()` comes too late.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any


def onnxruntime() -> ModuleType:
    """The module; a telemetry that was already begun by another import of this process is not ours
    to end."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import, which reads it
    import onnxruntime as module

    return module


@functools.cache
def with_shared_threads(num: int) -> ModuleType:
    """The module, where all sessions from now on share `num` threads.

    Hundreds of sessions with threads of their own would wake them for every product. A process
    that has shared threads refuses a session with its own, also the voice activity's, which a
    library makes: so every session's options say that they share.
    """
    module: Any = onnxruntime()
    plain: Any = module.SessionOptions

    class Sharing(plain):
        def __init__(self) -> None:
            super().__init__()
            self.use_per_session_threads = False

    module.set_global_thread_pool_sizes(num, 1)
    module.set_default_logger_severity(3)  # else it warns of each session that asked for threads
    vars(module)["SessionOptions"] = Sharing
    return module
