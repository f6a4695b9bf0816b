"""What a calibration came to: the frozen dataclass that command.py makes and report.py shows."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.calibrate.clips import Clip
from streamer.core.calibration.certify import Certified


@dataclass(frozen=True)
class Calibration:
    """What came out. skipped: preset -> signal -> share of blocks, on the clips that chose; empty
    where none did."""

    results: list[Certified]
    skipped: dict[str, dict[str, float]]
    certifying: list[Clip]
    num_failed: int  # files that could not be read
