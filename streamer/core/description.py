"""What a description is, for API and JSON. In: a turn's text and counts. Out: a Description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from streamer.core.decoding.plan import Counts
from streamer.core.measures.curves import Curves
from streamer.core.measures.speech_measures import SpeechMeasures, join_measures
from streamer.core.timeline import TimedTurn, Timeline

SHORT_S = 1.5  # the models never heard less, and levels are steady only from 3 s on
GUESS = "what is said of so little speech is a guess, 3 s are enough"
# what a Description has of its Counts, under the same names
COUNTED = (
    *("n_drafted", "n_uploaded", "n_accepted", "n_corrected", "n_wasted", "n_ahead_wasted"),
    *("cloud_calls", "blocks", "blocks_unverified", "stall_ms", "bytes_up", "bytes_down"),
)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Committed ids and their text; never taken back. at_ms: since the turn's last sample."""

    text: str
    ids: tuple[int, ...]
    verified: bool
    at_ms: float
    turn: int = 0  # of a live session
    # where its part begins, of a recording that is described in parts
    from_s: float | None = None


@dataclass(frozen=True)
class Description:
    """One file or turn. Times in ms since the arrival of its last sample; counts in ids.

    tokens_per_s: n_tokens / (total_ms - prefill_ms), None for fewer than two ids.

    attributes: attribute -> level (0 is the physically lowest), None where the sentence does not
    say. parts: the turns of a recording longer than the model's `max_turn_s`, one sentence each;
    else empty.
    """

    file: str
    text: str
    stop_reason: str
    mode: str
    n_tokens: int
    n_drafted: int
    n_uploaded: int
    n_accepted: int
    n_corrected: int
    n_wasted: int
    cloud_calls: int
    blocks: int
    verified_share: float
    audio_s: float
    ttft_ms: float | None
    total_ms: float
    tokens_per_s: float | None
    attributes: dict[str, int | None]
    n_ahead_wasted: int = 0
    stall_ms: float = 0.0  # with nothing to do but wait for verdicts
    bytes_up: int = 0  # to a verifier elsewhere, audio and ids
    bytes_down: int = 0
    # of total_ms: until the first step is done, which gives the first id
    prefill_ms: float | None = None
    ttft_from_speech_ms: float | None = None  # from the last sample that holds speech
    ids: tuple[int, ...] = ()
    # one line: the file is cut short or too short, or blocks went unverified
    warning: str | None = None
    is_cut: bool = False  # the file is cut short; what there is was described
    parts: tuple[Description, ...] = field(default=())
    turn: int = 0  # of a live session
    measures: SpeechMeasures | None = None  # numbers with units, where they were asked for
    blocks_unverified: int = 0  # that were to be verified, and whose verdict did not come
    channel: int | None = None  # of the recording, from 0; None: all of them, mixed
    # attribute -> the chance that its level is right (core/confidence.py), None where it is not
    # said; None as a whole: the models have no curves for it, or nobody speaks
    confidence: dict[str, float | None] | None = None
    # of a turn, or of a part, where measures were asked for
    curves: Curves | None = field(default=None, compare=False, repr=False)

    @property
    def timeline(self) -> Timeline | None:
        """F0, level, rate, pauses and turns over time; None where measures were not asked for."""
        parts = self.parts or (self,)
        curves = [part.curves for part in parts if part.curves is not None]
        if not curves:
            return None
        ends = list(accumulate(part.audio_s for part in parts))
        turns = [
            TimedTurn(end - part.audio_s, end, part.text, part.attributes, part.measures)
            for part, end in zip(parts, ends, strict=True)
            if part.measures is not None
        ]
        return Timeline(self.file, ends[-1], Curves.joined(curves), turns)

    def as_json(self) -> dict[str, Any]:
        """Plain types, floats rounded to what they are good for."""
        row = asdict(replace(self, curves=None, parts=()))
        del row["curves"]
        row["measures"] = self.measures and self.measures.as_json()
        row["confidence"] = self.confidence and {
            name: p and round(p, 3) for name, p in self.confidence.items()
        }
        row["parts"] = [part.as_json() for part in self.parts]
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}


def describe_turn(
    file: str,
    text: str,
    ids: Sequence[int],
    stop_reason: str,
    mode: str,
    counts: Counts,
    audio_s: float,
    ttft_ms: float | None,
    prefill_ms: float | None,
    total_ms: float,
    silence_s: float | None,
    attributes: dict[str, int | None],
    warning: str | None = None,
) -> Description:
    """A Description of one turn. silence_s: between the last speech and the last sample."""
    if audio_s < SHORT_S and stop_reason != "no_speech":
        warning = "; ".join(filter(None, (f"only {audio_s:.1f} s long: {GUESS}", warning)))
    decode_ms = total_ms - (prefill_ms or 0.0)
    from_speech_ms = None
    if ttft_ms is not None and silence_s is not None:
        from_speech_ms = ttft_ms + 1000 * silence_s
    return Description(
        file=file,
        text=text,
        stop_reason=stop_reason,
        mode=mode,
        n_tokens=len(ids),
        verified_share=counts.verified_share,
        audio_s=audio_s,
        ttft_ms=ttft_ms,
        total_ms=total_ms,
        tokens_per_s=len(ids) / decode_ms * 1000 if len(ids) > 1 and decode_ms > 0 else None,
        attributes=attributes,
        prefill_ms=prefill_ms,
        ttft_from_speech_ms=from_speech_ms,
        ids=tuple(ids),
        warning=warning,
        **{name: getattr(counts, name) for name in COUNTED},
    )


def join_parts(
    file: str, parts: Sequence[Description], warning: str | None = None, is_cut: bool = False
) -> Description:
    """One Description of a recording that was described in parts: texts joined, counts summed.

    ttft_ms, total_ms, prefill_ms and tokens_per_s are those of the last part that holds speech. An
    attribute is the level that most parts gave it, the earlier one where two are as frequent.
    warning: of the file, such as one that is cut short.
    """
    if len(parts) == 1:
        return replace(parts[0], warning=_joined(parts, warning), is_cut=is_cut)
    spoken = [p for p in parts if p.stop_reason != "no_speech"]
    last = (spoken or parts)[-1]
    summed = ("n_tokens", "audio_s", *COUNTED)
    total = {name: sum(getattr(p, name) for p in parts) for name in summed}
    verified = sum(p.verified_share * p.n_tokens for p in parts)
    return Description(
        file=file,
        text="".join(p.text for p in parts),
        stop_reason=last.stop_reason,
        mode=last.mode,
        verified_share=verified / total["n_tokens"] if total["n_tokens"] else 0.0,
        ttft_ms=last.ttft_ms,
        total_ms=last.total_ms,
        tokens_per_s=last.tokens_per_s,
        attributes={
            name: _most_frequent([p.attributes[name] for p in spoken]) for name in last.attributes
        },
        prefill_ms=last.prefill_ms,
        ttft_from_speech_ms=last.ttft_from_speech_ms,
        ids=tuple(i for p in parts for i in p.ids),
        warning=_joined(parts, warning),
        is_cut=is_cut,
        parts=tuple(parts),
        measures=join_measures([p.measures for p in parts if p.measures is not None]),
        confidence=_join_confidence(spoken),
        **total,
    )


def _join_confidence(parts: Sequence[Description]) -> dict[str, float | None] | None:
    """Of each attribute the mean over those parts that say its most frequent level; None where one
    of them does not know."""
    if not parts or any(part.confidence is None for part in parts):
        return None
    found: dict[str, float | None] = {}
    for name in parts[0].attributes:
        level = _most_frequent([part.attributes[name] for part in parts])
        told = [p.confidence[name] for p in parts if p.confidence and p.attributes[name] == level]
        known = [p for p in told if p is not None]
        found[name] = sum(known) / len(known) if known and len(known) == len(told) else None
    return found


def unverified(counts: Counts, mode: str, name: str, trouble: str) -> str | None:
    """One line about blocks that were to be verified and were not; None where there are none."""
    if not (n := counts.blocks_unverified):
        return None
    wanted = " that the gate wanted verified" if mode == "gated" else ""
    return f"{name} gave no verdict ({trouble}): {n} block{'s' * (n > 1)}{wanted} went unverified"


def _joined(parts: Sequence[Description], warning: str | None) -> str | None:
    """The file's own first, then the first of its parts'."""
    of_parts = [part.warning for part in parts if part.warning]
    more = f" (so in {len(of_parts)} of {len(parts)} parts)" if len(parts) > 1 else ""
    told = [warning, *(first + more for first in of_parts[:1])]
    return "; ".join(filter(None, told)) or None


def _most_frequent(levels: Sequence[int | None]) -> int | None:
    said = [level for level in levels if level is not None]
    return max(said, key=lambda level: (said.count(level), -said.index(level))) if said else None


_BREAKS = dict.fromkeys(map(ord, "\n\r\t"), " ")


def one_line(text: str) -> str:
    """Text of others as one line that a terminal and a log can bear: line breaks become blanks,
    what a terminal would act on is spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.translate(_BREAKS))
