"""The options of commands that do one thing and end.

Light on purpose: `--help` reads this file and loads no model's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from streamer.config import Config, ConfigError, Edge
from streamer.core.declare import Checked, about
from streamer.core.measures.voice_pitch import PitchReference, Voice

Files = Annotated[
    tuple[str, ...],
    about(
        "a recording, or a directory of recordings; - for a WAV on stdin",
        metavar="FILE",
        positional=True,
    ),
]
Pipeline = Annotated[
    str | None,
    about(
        "a TOML file of the model's options; the command line overrides it",
        "pipelines/edge.toml",
        metavar="FILE",
    ),
]
Reference = Annotated[
    str | None,
    about(
        "also tell low and high for this voice: its usual pitch in Hz, or auto, the median of "
        "the turns of a recording over 60 s, or of --intervals",
        "180",
        metavar="HZ",
        unset="the absolute scale alone",
    ),
]
Json = Annotated[bool, about("JSON on stdout, nothing else")]


def reference_of(text: str | None) -> PitchReference:
    """--pitch-reference as the API takes it. Raises ConfigError."""
    try:
        found: PitchReference = "auto" if text == "auto" else None if text is None else float(text)
    except ValueError:
        raise ConfigError(f"pitch_reference is {text!r}; give Hz, or auto") from None
    try:
        Voice(found)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return found


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(Checked):
    """Options of `streamer describe`."""

    files: Files
    json: Annotated[bool, about("one JSON object per recording; a failed one has `error`")] = False
    quiet: Annotated[bool, about("the sentences only, without names and warnings")] = False
    measures: Annotated[
        bool,
        about("also the numbers: a table below each sentence, or `measures` in each JSON object"),
    ] = False
    timeline: Annotated[
        str | None,
        about(
            "pitch, level, rate and pauses over time; FILE in .json, .vtt, .TextGrid or .png",
            "s.png",
            metavar="FILE",
        ),
    ] = None
    verbose: Annotated[
        bool, about("speed and verification of each recording, on stderr", short="-v")
    ] = False
    intervals: Annotated[
        str | None,
        about(
            "measures of each interval of FILE: .srt, .vtt, .TextGrid, or whisper's .json",
            "clip.srt",
            metavar="FILE",
        ),
    ] = None
    pitch_reference: Reference = None
    filled_pauses: Annotated[
        bool, about("count filled pauses (um, 嗯) by their sound; it misses up to half of them")
    ] = False
    channels: Annotated[
        Literal["mixed", "apart"],
        about("apart: each channel is a speaker with a description of their own", "apart"),
    ] = "mixed"
    track: Annotated[
        int | None, about("sound track of a film, from 0", "1", unset="the default one", ge=0)
    ] = None
    jobs: Annotated[
        int, about("recordings at once; each is shown when it is done", "2", ge=1, le=64)
    ] = 1
    pipeline: Pipeline = None

    def __post_init__(self) -> None:
        super().__post_init__()
        reference_of(self.pitch_reference)

    @property
    def reference(self) -> PitchReference:
        """pitch_reference as the API takes it."""
        return reference_of(self.pitch_reference)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Checked):
    """Options of `streamer compare`."""

    files: Annotated[
        tuple[str, ...],
        about("two recordings: the first take, the second", "", metavar="FILE", positional=True),
    ]
    pitch_reference: Annotated[
        float | None,
        about("a voice's usual pitch in Hz: also tell low and high for it", "180", ge=30, le=1000),
    ] = None
    json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.files) != 2:
            raise ConfigError(f"compare takes two recordings, not {len(self.files)}")


@dataclass(frozen=True, kw_only=True)
class ListenOptions(Checked):
    """Options of `streamer listen`."""

    microphone: Annotated[
        str | None,
        about("its number, or a part of its name", "USB", metavar="D", unset="the system's"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LabelOptions(Checked):
    """Options of `streamer label`."""

    files: Files
    out: Annotated[
        str,
        about(
            "the table: .jsonl grows row by row; .csv and .parquet are written at the end",
            "labels.jsonl",
            metavar="FILE",
        ),
    ]
    jobs: Annotated[int | None, about("processes", "2", ge=1, le=64, unset="one for each core")] = (
        None
    )
    tags: Annotated[
        Literal["dataspeech"] | None,
        about("add the columns noise and speech_monotony in dataspeech's words", "dataspeech"),
    ] = None
    intervals: Annotated[
        Literal["srt", "vtt", "TextGrid", "json"] | None,
        about(
            "rows of measures of the intervals in the file of this kind beside each recording, in "
            "place of sentences",
            "srt",
        ),
    ] = None
    pitch_reference: Reference = None
    pipeline: Pipeline = None

    def __post_init__(self) -> None:
        super().__post_init__()
        reference_of(self.pitch_reference)
        if not self.out.lower().endswith((".jsonl", ".csv", ".parquet")):
            raise ConfigError(f"--out is {self.out}; give a name in .jsonl, .csv or .parquet")
        if "-" in self.files:
            raise ConfigError("label reads files; give a file or a directory, not -")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Checked):
    """Options of `streamer calibrate`."""

    clips: Annotated[
        tuple[str, ...],
        about(
            "recordings of the kind that the gate will meet, or directories of them",
            metavar="CLIP",
            positional=True,
        ),
    ]
    risk: Annotated[
        float,
        about(
            "expected share of blocks that the cloud would change but is not asked about",
            "0.05",
            gt=0,
            lt=1,
            metavar="R",
        ),
    ]
    confidence: Annotated[
        float,
        about(
            "keep the risk with this confidence, too, e.g. 0.9; 0: in expectation only",
            "0.9",
            ge=0,
            le=0.999,
            metavar="C",
        ),
    ] = 0.0
    by_folder: Annotated[
        bool, about("keep the risk for each folder of clips, e.g. short and long ones")
    ] = False
    language: Annotated[
        str | None,
        about(
            "of the sentences; another language than the first gets thresholds of its own",
            "en",
            metavar="L",
            unset="the edge's first",
        ),
    ] = None
    edge: Edge = "embedded"
    cloud: Annotated[
        str,
        about("the model itself: embedded, a directory, or a hub id", "embedded", metavar="SPEC"),
    ] = "embedded"
    out: Annotated[
        str | None,
        about(
            "DIR: a copy of the edge with the new thresholds; FILE.json: its card alone",
            "myedge",
            metavar="DIR_OR_FILE",
            unset="the edge's own streamer.json, except for the embedded one",
        ),
    ] = None
    json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Config(cloud=self.cloud).has_cloud_here:
            told = "calibration needs the model itself: a directory or a hub id"
            raise ConfigError(f"--cloud is {self.cloud}; {told}")


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Checked):
    """Options of `streamer models`."""

    directories: Annotated[
        tuple[str, ...],
        about(
            "also this model, or the models in this directory; the embedded pair and the hub's "
            "cache are always listed",
            metavar="DIRECTORY",
            positional=True,
        ),
    ] = ()
    json: Json = False
    prepare: Annotated[
        str | None,
        about(
            "convert this model for --engine once, into STREAMER_CACHE or the user's cache, so "
            "that it loads in seconds; lists nothing",
            "DIRECTORY",
            metavar="SPEC",
        ),
    ] = None
    engine: Annotated[
        Literal["int8", "int4"], about("8 or 4 bits per weight, for --prepare", "int4")
    ] = "int8"


@dataclass(frozen=True, kw_only=True)
class WarmOptions(Checked):
    """Options of `streamer warm`."""


@dataclass(frozen=True, kw_only=True)
class SamplesOptions(Checked):
    """Options of `streamer samples`."""

    copy: Annotated[
        str | None,
        about(
            "copy recordings and the client into DIR, which is made if it does not exist",
            "here",
            metavar="DIR",
            unset="none: only their paths are shown",
        ),
    ] = None
