"""Names that several rooms share, so that each list stands once."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["fast", "stable", "int8", "int4", "stock"]  # what runs a model
DeviceName = Literal["cpu", "cuda"]
