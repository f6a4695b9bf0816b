"""What a server tells of itself: its loop's lag, its memory, audio that waits. In: its address and
pid. Out: numbers of one round."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path
from typing import Any

TARGET_LAG_S = 0.02


class Watch:
    """What a server tells of itself over one round: its loop's lag and its memory."""

    def __init__(self, url: str, pid: int | None) -> None:
        self._url = re.sub(r"^ws", "http", url).replace("/v1/realtime", "/metrics")
        self._pid = pid
        self._before, self._rss_mb = self._lag(), self._memory_mb()
        self.peak_mb = self._rss_mb
        self.audio_lag_s = 0.0

    async def keep(self) -> None:
        """Note the memory, and the audio that waits to be heard, while the clients play."""
        while True:
            self.peak_mb = max(self.peak_mb, self._memory_mb())
            (lag,) = re.findall(
                r"^streamer_audio_lag_seconds (\S+)$", await asyncio.to_thread(self._metrics), re.M
            )
            self.audio_lag_s = max(self.audio_lag_s, float(lag))
            await asyncio.sleep(0.2)

    def read(self, num_clients: int) -> dict[str, Any]:
        after = self._lag()
        num, slow, total = (after[i] - self._before[i] for i in range(3))
        told: dict[str, Any] = {"audio_lag_max_s": self.audio_lag_s}
        told |= {"loop_lag_ms": 1000 * total / max(1, num), "loop_over_20ms": slow / max(1, num)}
        if self._pid is not None:
            told |= {
                "rss_mb": self.peak_mb,
                "rss_mb_per_session": (self.peak_mb - self._rss_mb) / num_clients,
            }
        return told

    def _lag(self) -> tuple[float, float, float]:
        """(measurements, those over 20 ms, their sum in seconds)"""
        text = self._metrics()
        lines = re.findall(r"^streamer_loop_lag_seconds_(\S*) (\S+)$", text, re.M)
        found = {name: float(value) for name, value in lines}
        late = found["count"] - found[f'bucket{{le="{TARGET_LAG_S}"}}']
        return found["count"], late, found["sum"]

    def _metrics(self) -> str:
        with urllib.request.urlopen(self._url) as answer:
            return str(answer.read(), "utf-8")

    def _memory_mb(self) -> float:
        """Resident memory of the process."""
        if self._pid is None:
            return 0.0
        told = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", told)[0]) / 1024
