"""The pictures of docs/. Run `python docs/pictures/draw.py` to write them again.

Each picture is an SVG file of boxes, arrows and words. The places are in pixels, x to the right
and y down. A test holds the files to this script.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FILLS = {
    "net": "#efe6f6",
    "stages": "#dff2ea",
    "model": "#fdecd8",
    "core": "#e2ebf7",
    "top": "#f1f1ee",
    "outside": "#ffffff",
}
INK = "#22303c"
SOFT = "#5b6a76"
LINE_PX = 17


def text(x: float, y: float, words: str, size: int = 13, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {more}>{escape(words)}</text>'


def heading(title: str, told: str) -> list[str]:
    return [text(20, 40, title, 19, 'font-weight="bold"'), text(20, 64, told, 13, f'fill="{SOFT}"')]


def box(place: tuple[float, float, float, float], room: str, title: str, *lines: str) -> str:
    """A box of x, y, width, height in the colour of `room`: a title, and small lines below it."""
    x, y, w, h = place
    found = [
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" '
        f'fill="{FILLS[room]}" stroke="{SOFT}"/>',
        text(x + 12, y + 23, title, 15, 'font-weight="bold"'),
    ]
    found += [
        text(x + 12, y + 44 + LINE_PX * i, line, 12, f'fill="{SOFT}"')
        for i, line in enumerate(lines)
    ]
    return "\n".join(found)


def arrow(
    points: Sequence[tuple[float, float]],
    words: str = "",
    at: tuple[float, float] = (0, 0),
    anchor: str = "middle",
) -> str:
    """A line through `points` with a head at its end; `words` stand at `at`."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    found = [
        f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.6" '
        'marker-end="url(#head)"/>'
    ]
    found += [
        text(at[0], at[1] + 15 * i, line, 12, f'text-anchor="{anchor}" fill="{INK}"')
        for i, line in enumerate(filter(None, words.split("\n")))
    ]
    return "\n".join(found)


def picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A whole SVG file."""
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="DejaVu Sans, Verdana, sans-serif" fill="{INK}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<defs>{head}</defs>",
            f'<rect width="{width}" height="{height}" rx="12" fill="#fbfbfa"/>',
            *parts,
            "</svg>\n",
        ]
    )


STAGE, WIDE = 150, 176  # widths in flow
ROW, LOW = 96, 262  # heights of the stages, and of verify
CHUNK, PREFILL, DRAFT, EMIT = 190, 418, 646, 874  # their left sides


def stages() -> list[str]:
    """The steps of a turn in a row, and the queues between them."""
    return [
        box((20, ROW, 118, 92), "net", "client", "websocket,", "page, file"),
        box((CHUNK, ROW, STAGE, 92), "stages", "chunk", "resample, log-mel,", "voice activity"),
        box((PREFILL, ROW, STAGE, 92), "stages", "prefill", "windows of 2 s", "into a KV slot"),
        box((DRAFT, ROW, STAGE, 92), "stages", "draft", "k tokens, gate,", "roll back, commit"),
        box((EMIT, ROW, STAGE, 92), "stages", "emit", "tokens to text,", "description"),
        box((1072, ROW, 118, 92), "net", "client", "text deltas,", "attributes"),
        box((DRAFT + 46, LOW, STAGE, 74), "stages", "verify", "one task a request"),
        arrow([(138, 142), (CHUNK, 142)], "PCM\n5 s wait", (164, 110)),
        arrow([(CHUNK + STAGE, 142), (PREFILL, 142)], "windows\n8", (379, 110)),
        arrow([(PREFILL + STAGE, 142), (DRAFT, 142)], "turns\n3", (607, 110)),
        arrow([(DRAFT + STAGE, 142), (EMIT, 142)], "tokens", (835, 110)),
        arrow([(EMIT + STAGE, 142), (1072, 142)], "events\n256", (1048, 110)),
        arrow([(DRAFT + 70, 188), (DRAFT + 70, LOW)]),
        arrow(
            [(DRAFT + 120, LOW), (DRAFT + 120, 188)],
            "up to 4 requests,\nup to 4 verdicts",
            (DRAFT + 130, 220),
            "start",
        ),
    ]


def models() -> list[str]:
    """What the stages ask: the models here, and the link."""
    return [
        box(
            (190, 420, 378, 112),
            "model",
            "edge model: one thread",
            "listener.py: one turn in a KV slot",
            "scheduler.py: a row of each stream, one step",
            "decoding.py: k tokens, choice and rules",
            "kernels/ or engines/: the step itself",
        ),
        box(
            (614, 420, WIDE + 34, 112),
            "model",
            "cloud model here",
            "parts.py asks its thread",
            "decoding.py: k drafts and one",
            "more in a single step",
        ),
        box(
            (862, 420, WIDE + 22, 112),
            "net",
            "link",
            "target.py: one turn",
            "client.py: its websocket",
            "audio once, then tokens",
        ),
        box(
            (862, 590, WIDE + 22, 96),
            "net",
            "verifier elsewhere",
            "server.py: all turns",
            "the cloud model, its thread",
        ),
    ]


def hops() -> list[str]:
    """The arrows between stages and models."""
    return [
        arrow(
            [(PREFILL + 75, 188), (PREFILL + 75, 420)], "hear a window", (PREFILL + 68, 350), "end"
        ),
        arrow(
            [(DRAFT + 24, 188), (DRAFT + 24, 376), (540, 376), (540, 420)],
            "draft k tokens",
            (604, 369),
        ),
        arrow(
            [(DRAFT + 100, LOW + 74), (DRAFT + 100, 420)],
            "in this process",
            (DRAFT + 108, 392),
            "start",
        ),
        arrow(
            [(DRAFT + 46 + STAGE, LOW + 37), (960, LOW + 37), (960, 420)],
            "or --cloud ws://",
            (968, 352),
            "start",
        ),
        arrow([(940, 532), (940, 590)], "requests", (932, 566), "end"),
        arrow([(980, 590), (980, 532)], "verdicts", (988, 566), "start"),
    ]


def flow() -> str:
    """One turn: from samples to text."""
    parts = [
        *stages(),
        *models(),
        *hops(),
        *heading(
            "One turn: from samples to text",
            "A number at an arrow is its bound. The state machine in core/decoding "
            "decides what draft does next.",
        ),
        box(
            (20, 590, 548, 96),
            "core",
            "core: no torch, no socket, no clock",
            "decoding/machine.py says DraftMore, VerifyRequest, Emit, Wait or Done.",
            "sequence.py owns the length; plan.py and rules/ decide on tokens.",
        ),
    ]
    return picture(1210, 706, "One turn: from samples to text", parts)


def room_boxes() -> list[str]:
    """The rooms, from the top to the core."""
    return [
        box(
            (20, 90, 1010, 74),
            "top",
            "top",
            "cli, config, describer, programs, intervals, timeline;",
            "audio/, assembly.py, commands/, extras/",
        ),
        box((720, 226, 310, 92), "net", "net", "websockets: service/, realtime/, link/, page/"),
        box(
            (370, 226, 310, 140),
            "stages",
            "stages",
            "anyio: stream, turn,",
            "events, parts.",
            "Models come in as Parts.",
        ),
        box(
            (20, 226, 310, 140),
            "model",
            "model",
            "synchronous: thinker,",
            "listener, scheduler, decoding;",
            "audio/, checkpoint/, engines/,",
            "kernels/, embedded/",
        ),
        box(
            (20, 426, 1010, 84),
            "core",
            "core",
            "pure: audio/, measures/, decoding/, rules/, text/, link/, description",
            "Imports numpy, soxr and msgspec. No async, socket, torch, clock or global random.",
        ),
    ]


def rooms() -> str:
    """The rooms of streamer/, and which of them may import which."""
    parts = [
        *heading(
            "Rooms and doors",
            "An arrow means: may import. tests/test_doors.py holds every file to it.",
        ),
        *room_boxes(),
        arrow([(175, 164), (175, 226)]),
        arrow([(525, 164), (525, 226)]),
        arrow([(875, 164), (875, 226)]),
        arrow([(720, 272), (680, 272)]),
        arrow([(175, 366), (175, 426)]),
        arrow([(525, 366), (525, 426)]),
        arrow([(875, 318), (875, 426)]),
    ]
    return picture(1050, 530, "Rooms and doors", parts)


def fleet() -> str:
    """A client's way to a server, and that server's to a verifier."""
    left, middle, right = 20, 330, 700
    parts = [
        text(20, 36, "The fleet", 19, 'font-weight="bold"'),
        box((left, 150, 170, 92), "outside", "client", "OpenAI's, ours,", "a page"),
        box((middle, 56, 230, 74), "top", "director", "knows who has room;", "holds no session"),
        box(
            (middle, 206, 230, 92),
            "net",
            "servers",
            "server-1.9f31c0 ...",
            "a port and places each",
        ),
        box(
            (right, 206, 230, 92),
            "net",
            "verifiers",
            "verifier-2.44b0aa ...",
            "a KV slot for each turn",
        ),
        box(
            (middle, 370, 600, 74),
            "model",
            "Ray",
            "starts, places and restarts processes; no audio, no token",
        ),
        arrow(
            [(190, 172), (260, 100), (middle, 100)], "1  where to?  307 or 503", (150, 86), "start"
        ),
        arrow([(190, 222), (middle, 252)], "2  the session", (262, 262)),
        arrow(
            [(middle + 170, 206), (middle + 170, 130)], "3  where to?", (middle + 180, 172), "start"
        ),
        arrow([(middle + 230, 252), (right, 252)], "4  the link", (630, 242)),
        arrow(
            [(middle + 230, 94), (right + 115, 94), (right + 115, 206)],
            "how are you?  /statusz",
            (690, 84),
        ),
        arrow([(middle + 115, 370), (middle + 115, 298)]),
        arrow([(right + 115, 370), (right + 115, 298)]),
    ]
    return picture(950, 464, "The fleet", parts)


PICTURES = {"flow.svg": flow, "rooms.svg": rooms, "fleet.svg": fleet}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), "utf-8")
