"""A description: one turn's or file's sentence, with its counts, times and attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from importlib import import_module
from itertools import accumulate
from operator import attrgetter
from typing import Any

from streamer.core.attributes import NAMED_IN, LevelNames, card, readings_of
from streamer.core.audio.pcm import QUIET_DBFS
from streamer.core.decoding.plan import Counts
from streamer.core.measures.speech_measures import (
    PitchReference,
    SpeechMeasures,
    Voice,
    VoicePitch,
    join_measures,
)
from streamer.core.rules.form import marks_of
from streamer.core.timeline import Curves, Timeline

SHORT_S = 1.5  # the models never heard less, and levels are steady only from 3 s on
QUIET = (
    f"very quiet: hardly a sample is over {QUIET_DBFS:.0f} dBFS, so speech may be missed or "
    "misjudged; record it louder, or raise its volume"
)
GUESS = "only {:.1f} s of speech: a description of so little is a guess, 3 s are enough"
JSON_FIELDS = (
    *("file", "text", "stop_reason", "mode", "n_tokens", "n_drafted", "n_uploaded", "n_accepted"),
    *("n_corrected", "n_wasted", "cloud_calls", "blocks", "verified_share", "audio_s", "ttft_ms"),
    *("total_ms", "tokens_per_s", "attributes", "n_ahead_wasted", "stall_ms", "bytes_up"),
    *("bytes_down", "prefill_ms", "ttft_from_speech_ms", "ids", "warning", "is_cut", "parts"),
    *("turn", "measures", "blocks_unverified", "channel", "confidence", "language", "levels"),
    "voice_pitch",
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


def _count(name: str) -> Any:
    """One of a Description's counts, under the same name."""
    return property(attrgetter(f"counts.{name}"))


class Level(dict[str, Any]):
    """One attribute's level, as in the JSON: {"level": 0, "zh": "很慢", "en": "very slow"}. `level`
    and `name`, which is that of the sentence's language, are attributes, too."""

    def __init__(self, level: int, names: Mapping[str, str | None], language: str) -> None:
        super().__init__({"level": level, **names})
        self.level = level
        self.name = names.get(language) or next(filter(None, names.values()), None)


@dataclass(frozen=True, kw_only=True, repr=False)
class Description:
    """One file or turn. `str()` is its sentence, `levels["rate"].name` a level's name.

    Times are in ms since the arrival of the last sample.
    """

    text: str
    # attribute -> level (0 is the physically lowest), None where the sentence does not say
    attributes: dict[str, int | None]
    measures: SpeechMeasures | None = None  # numbers with units, where they were asked for
    # where a pitch reference was given; the sentence's pitch is absolute
    voice_pitch: VoicePitch | None = None
    # attribute -> the chance that its level is right (core/attributes.py), None where it is not
    # said; None as a whole: with words="models", or without speech
    confidence: dict[str, float | None] | None = None
    # one line: the file is cut short or quiet, blocks went unverified, or, if `measures` were not
    # asked for, one of their warnings
    warning: str | None = None
    audio_s: float
    language: str = "zh"  # of the sentence
    file: str
    channel: int | None = None  # of the recording, from 0; None: the loudest at each time
    turn: int = 0  # of a live session
    is_cut: bool = False  # the file is cut short; what there is was described
    # the turns of a recording longer than the model's `max_turn_s`, one sentence each; else empty
    parts: tuple[Description, ...] = field(default=())
    start_s: float = 0.0  # of a part, in the recording
    stop_reason: str
    mode: str
    ttft_ms: float | None = None
    total_ms: float = 0.0
    prefill_ms: float | None = None  # until the first step is done, which gives the first id
    ttft_from_speech_ms: float | None = None  # from the last sample that holds speech
    counts: Counts  # in ids; each is an attribute of the Description too, such as `n_drafted`
    ids: tuple[int, ...] = ()
    level_names: LevelNames = field(default_factory=dict, compare=False)  # of the model
    # of a turn, or of a part, where measures were asked for
    curves: Curves | None = field(default=None, compare=False)

    n_drafted = _count("n_drafted")
    n_uploaded = _count("n_uploaded")
    n_accepted = _count("n_accepted")
    n_corrected = _count("n_corrected")
    n_wasted = _count("n_wasted")
    n_ahead_wasted = _count("n_ahead_wasted")
    cloud_calls = _count("cloud_calls")
    blocks = _count("blocks")
    blocks_unverified = _count("blocks_unverified")
    bytes_up = _count("bytes_up")
    bytes_down = _count("bytes_down")
    stall_ms = _count("stall_ms")  # with nothing to do but wait for verdicts
    verified_share = _count("verified_share")  # of the committed ids: the target agreed to them

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def end_s(self) -> float:
        return self.start_s + self.audio_s

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        said = [f"{name}={level.name}" for name, level in self.levels.items() if level is not None]
        return f"Description({', '.join([repr(self.text), *said, f'{self.audio_s:.1f} s'])})"

    def _repr_html_(self) -> str:
        return card(self)

    @property
    def levels(self) -> dict[str, Level | None]:
        """attribute -> its level and the level's names; None where the sentence does not say."""
        unknown: Mapping[str, str | None] = dict.fromkeys(NAMED_IN)
        found: dict[str, Level | None] = dict.fromkeys(self.attributes)
        for name, level in self.attributes.items():
            if level is not None:
                names = self.level_names.get(name)
                found[name] = Level(level, names[level] if names else unknown, self.language)
        return found

    @property
    def tokens_per_s(self) -> float | None:
        """n_tokens / (total_ms - prefill_ms), None for fewer than two ids; of a recording in parts
        that of the last part with speech."""
        if self.parts:
            return _last_spoken(self.parts).tokens_per_s
        decode_ms = self.total_ms - (self.prefill_ms or 0.0)
        return self.n_tokens / decode_ms * 1000 if self.n_tokens > 1 and decode_ms > 0 else None

    @property
    def timeline(self) -> Timeline | None:
        """F0, level, rate, pauses and turns over time; None where measures were not asked for."""
        parts = self.parts or (self,)
        if not (curves := [part.curves for part in parts if part.curves is not None]):
            return None
        turns = [part for part in parts if part.measures is not None]
        return Timeline(self.file, parts[-1].end_s, Curves.joined(curves), turns, self.channel)

    def to_frame(self) -> Any:
        """A DataFrame of pandas, or else of polars, with a row for each attribute (`Reading`).
        Raises ImportError if neither is installed."""
        rows = [asdict(reading) for reading in readings_of(self)]
        for name in ("pandas", "polars"):
            with suppress(ImportError):
                return import_module(name).DataFrame(rows)
        raise ImportError("a frame needs pandas or polars; install one of them")

    def to_dict(self) -> dict[str, Any]:
        """Plain types, as in the JSON of `streamer describe`; floats are rounded."""
        row = {name: getattr(self, name) for name in JSON_FIELDS}
        row["measures"] = self.measures and self.measures.as_json()
        row["voice_pitch"] = self.voice_pitch and self.voice_pitch.as_json()
        chances = self.confidence
        row["confidence"] = chances and {name: p and round(p, 3) for name, p in chances.items()}
        row["parts"] = [part.to_dict() for part in self.parts]
        return {name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}

    as_json = to_dict


def for_voice(found: Description, reference: PitchReference) -> Description:
    """The same with `voice_pitch`, in its parts too: they are turns of one speaker."""
    voice = Voice(reference)
    for turn in found.parts or (found,):
        voice.add(turn.measures)
    parts = tuple(replace(part, voice_pitch=voice.of(part.measures)) for part in found.parts)
    return replace(found, voice_pitch=voice.of(found.measures), parts=parts)


def join_parts(
    parts: Sequence[Description], warning: str | None = None, is_cut: bool = False
) -> Description:
    """One Description of a recording that was described in parts: texts joined, counts summed.

    ttft_ms, total_ms, prefill_ms and tokens_per_s are those of the last part that holds speech. An
    attribute is the level that most parts gave it, the earlier one where two are as frequent; its
    confidence is the mean over these parts, None where one of them has none. warning: of the file,
    such as one that is cut short.
    """
    spoken = [p for p in parts if p.stop_reason != "no_speech"]
    told = [warning] if warning else []
    if warnings := [p.warning for p in spoken or parts if p.warning]:
        more = f" (so in {len(warnings)} of {len(parts)} parts)" if len(parts) > 1 else ""
        told.append(warnings[0] + more)
    warning = "; ".join(told) or None
    if len(parts) == 1:
        return replace(parts[0], warning=warning, is_cut=is_cut)
    last = _last_spoken(parts)
    attributes: dict[str, int | None] = {}
    confidence: dict[str, float | None] = {}
    for name in last.attributes:
        said = [level for p in spoken if (level := p.attributes[name]) is not None]
        attributes[name] = level = Counter(said).most_common(1)[0][0] if said else None
        chances = [(p.confidence or {}).get(name) for p in spoken if p.attributes[name] == level]
        known = [chance for chance in chances if chance is not None]
        confidence[name] = sum(known) / len(known) if len(known) == len(chances) > 0 else None
    begins = accumulate((p.audio_s for p in parts), initial=0.0)
    return replace(
        last,
        text=marks_of(last.language).gap.join(p.text for p in parts if p.text),
        counts=Counts(*map(sum, zip(*(astuple(p.counts) for p in parts), strict=True))),
        audio_s=sum(p.audio_s for p in parts),
        attributes=attributes,
        ids=tuple(i for p in parts for i in p.ids),
        warning=warning,
        is_cut=is_cut,
        parts=tuple(replace(p, start_s=begin) for p, begin in zip(parts, begins, strict=False)),
        measures=join_measures([p.measures for p in parts if p.measures is not None]),
        confidence=confidence if spoken and all(p.confidence for p in spoken) else None,
        curves=None,
    )


def _last_spoken(parts: Sequence[Description]) -> Description:
    """The last one that holds speech, or the last one."""
    return next((p for p in reversed(parts) if p.stop_reason != "no_speech"), parts[-1])


def turn_warning(
    counts: Counts, mode: str, speech_s: float, cloud: Any, faults: Sequence[str]
) -> str | None:
    """One line about a turn that is too short, has faults or blocks without a verdict, or None."""
    found = [*faults]
    if speech_s < SHORT_S:
        found.append(GUESS.format(speech_s))
    if n := counts.blocks_unverified:
        wanted = " that the gate wanted verified" if mode == "gated" else ""
        blocks = f"{n} block{'s' * (n > 1)}{wanted} went unverified"
        found.append(f"{cloud.name} gave no verdict ({cloud.trouble}): {blocks}")
    return "; ".join(found) or None


def one_line(text: str) -> str:
    """Foreign text on one line, safe to print: breaks become blanks, control characters escapes."""
    text = text.translate(dict.fromkeys(map(ord, "\n\r\t"), " "))
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
