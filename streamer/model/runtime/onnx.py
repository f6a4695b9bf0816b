"""Nothing in; the module onnxruntime out, its telemetry off: the only place that imports it.

From 1.31 on it looks up mobile.events.data.microsoft.com, and keeps a device id under the user's
cache, from the moment that it is imported. Only the environment turns that off:
`disable_telemetry_events()` comes too late.
"""

from __future__ import annotations

import os
from types import ModuleType


def onnxruntime() -> ModuleType:
    """The module; what another import of it in this process has begun is not ours to end."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import, which reads it
    import onnxruntime as module

    return module
