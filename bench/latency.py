"""How long after the last word does text come, over a real socket? In: held-out clips. Out: percentiles, a plot.

`python -m bench.latency [--clients 1 4 16] [--seconds 3 10 30 60]`. Starts a server of its own (or takes --url), plays
clips at real time from that many clients at once, and measures at the client: TTFT from the end of speech, ITL, time to
the whole sentence. In the same run, for one client, what a person would write today: collect the turn, then one-shot
`generate()` of the cloud, timed alone in this process, without even a socket.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from bench.clips import Clip, held_out
from bench.common import RESULTS, median, write

PIECE_S = 0.02
UPDATE = {"type": "session.update", "session": {"type": "realtime", "streamer": {"binary": True, "events": True},
          "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}}}  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Milliseconds at the client since the last sample was sent; itl: between deltas; late: behind real time."""

    ttft: float
    total: float
    itl: float
    late: float
    model_total: float


async def play(url: str, clip: Clip, delay_s: float) -> Timing | None:
    """One turn as a microphone would send it, timed at the client."""
    await asyncio.sleep(delay_s)
    pcm = (clip.samples * 32767).astype("<i2").tobytes()
    size = 2 * int(16_000 * PIECE_S)
    async with connect(url, compression=None) as socket:
        await socket.send(json.dumps(UPDATE))
        started, late = time.perf_counter(), 0.0
        for i, at in enumerate(range(0, len(pcm), size)):
            due = started + (i + 1) * PIECE_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await socket.send(pcm[at : at + size])
            late = max(late, time.perf_counter() - due)
        ended = time.perf_counter()
        await socket.send('{"type": "input_audio_buffer.commit"}')
        await socket.send('{"type": "response.create"}')
        at = []
        async for message in socket:
            event = json.loads(message)
            if event["type"] == "response.output_text.delta":
                at.append(1000 * (time.perf_counter() - ended))
            if event["type"] == "streamer.description":
                model = event["description"]["total_ms"]
                if not at:  # a turn that was taken for no speech has no time of its first text
                    return None
                return Timing(at[0], at[-1], median(np.diff(at).tolist()), 1000 * late, model)
    raise RuntimeError("the server closed the connection")


async def measure(url: str, clips: Sequence[Clip], num_clients: int) -> list[Timing]:
    """Every clip once, `num_clients` at a time, their starts spread over 2 s."""
    found: list[Timing] = []
    for first in range(0, len(clips), num_clients):
        some = clips[first : first + num_clients]
        played = await asyncio.gather(*(play(url, clip, 2.0 * i / num_clients) for i, clip in enumerate(some)))
        found += [timing for timing in played if timing is not None]
    return found


def baseline(clips: Sequence[Clip]) -> list[float]:
    """TTFT in ms of one-shot generate() of the cloud on the same clips, the first one dropped."""
    from bench.arms import models_of
    from bench.vs_transformers import one_shot
    from streamer.model.stock import load_stock

    cloud = models_of(mode="cloud").pair[1]
    assert cloud is not None
    stock = load_stock(cloud.directory)
    times = [1000 * one_shot(cloud, stock, clip.samples).first_s for clip in (clips[0], *clips)]
    return times[1:]


def loop_lag_ms(url: str) -> dict[str, float]:
    """Mean of the server's event loop's delay, and the share of delays over 20 ms."""
    http = re.sub(r"^ws", "http", url).replace("/v1/realtime", "/metrics")
    with urllib.request.urlopen(http) as answer:
        text = answer.read().decode()
    value = {k: float(v) for k, v in re.findall(r"^(streamer_loop_lag_seconds\S*) (\S+)$", text, re.M)}
    count = value["streamer_loop_lag_seconds_count"]
    below = value['streamer_loop_lag_seconds_bucket{le="0.02"}']
    return {"mean": 1000 * value["streamer_loop_lag_seconds_sum"] / count, "over_20ms": 1 - below / count}


def summarise(found: Sequence[Timing], **what: Any) -> dict[str, Any]:
    def percentiles(values: list[float]) -> dict[str, float]:
        return {f"p{p}": float(np.percentile(values, p)) for p in (50, 95, 99)}

    return {**what, "num": len(found), "ttft": percentiles([t.ttft for t in found]),
            "total": percentiles([t.total for t in found]), "itl": median(t.itl for t in found),
            "late_p99": float(np.percentile([t.late for t in found], 99)),
            "overhead": median(t.total / t.model_total - 1 for t in found)}  # fmt: skip


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """TTFT against the length of the turn, a line per number of clients."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), constrained_layout=True)
    for num in sorted({row["clients"] for row in rows}):
        mine = [row for row in rows if row["clients"] == num]
        x = [row["seconds"] for row in mine]
        axis.plot(x, [row["ttft"]["p50"] for row in mine], marker="o", label=f"{num} clients, median")
        axis.plot(x, [row["ttft"]["p95"] for row in mine], linestyle=":", color=axis.lines[-1].get_color())
    axis.set(title="First text after the end of speech (dotted: p95)", xlabel="seconds of speech", ylabel="ms")
    axis.set_ylim(0)
    axis.grid(alpha=0.3)
    axis.legend()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "latency.png"
    figure.savefig(file, dpi=110)
    return str(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running server; default: one of its own")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=int, nargs="+", default=[3, 10, 20, 30, 60])
    parser.add_argument("--num", type=int, default=4, help="turns per client and length, at most 16 clips of a length")
    options = parser.parse_args()
    command = [sys.executable, "-m", "streamer", "serve", "--port", "0", "--max-sessions", "64"]
    server = None if options.url else subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = options.url or server.stdout.readline().split()[2]  # type: ignore[union-attr]
        rows = []
        for seconds in options.seconds:
            clips = held_out(8 if seconds == 20 else 16, seconds)
            one_shot_ms = median(baseline(clips[: options.num]))
            for num in options.clients:
                some = (clips * num)[: max(num, options.num)]
                found = asyncio.run(measure(url, some, num))
                row = summarise(found, seconds=seconds, clients=num)
                row |= {"baseline_ttft": one_shot_ms, "ttft_ratio": row["ttft"]["p50"] / one_shot_ms}
                rows.append(row | {"loop_lag": loop_lag_ms(url)})
                print(f"{seconds} s, {num} clients: TTFT {row['ttft']['p50']:.0f} ms, p95 {row['ttft']['p95']:.0f}, "
                      f"{row['ttft_ratio']:.2f} of generate(); {row['late_p99']:.0f} ms late", flush=True)  # fmt: skip
    finally:
        if server is not None:
            server.terminate()
            server.wait(40)
    print("written:", write("latency", rows), plot(rows))


if __name__ == "__main__":
    main()
