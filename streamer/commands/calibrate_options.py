"""The options of `streamer calibrate`, each declared once (core/declare.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamer.commands.options import Checked
from streamer.config import Config, ConfigError
from streamer.core.declare import REQUIRED, Group, option, same

RISK = Group("the promise", "--risk 0.05 --confidence 0.9")
PAIR = Group("the pair", "--edge myedge --risk 0.05")
RESULT = Group("where it goes", "--risk 0.05 --out myedge")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Checked):
    """Of `streamer calibrate`."""

    clips: tuple[str, ...] = option(
        REQUIRED,
        RISK,
        "recordings of the kind the gate will meet, or directories of such",
        metavar="CLIP",
        is_argument=True,
    )
    risk: float = option(
        REQUIRED,
        RISK,
        "expected share of blocks that the cloud would change but is not asked about",
        "0.05",
        low=0,
        high=1,
        is_open=True,
        metavar="R",
    )
    quality_risk: float | None = option(
        None,
        RISK,
        "the same for preset quality",
        "0.02",
        low=0,
        high=1,
        is_open=True,
        metavar="R",
        unset="half of --risk",
    )
    confidence: float = option(
        0.0,
        RISK,
        "e.g. 0.9: keep the risk with this confidence, too; 0: in expectation alone",
        "0.9",
        low=0,
        high=0.999,
        metavar="C",
    )
    by_folder: bool = option(
        False, RISK, "keep the risk for each folder of clips by itself, e.g. short and long ones"
    )
    signal: Literal["auto", "entropy", "margin", "log_prob", "surprise"] = option(
        "auto", RISK, "what the gate looks at; auto: a part of the clips chooses", "entropy"
    )
    edge: str = same(Config, "edge", group=PAIR)
    cloud: str = option(
        "embedded",
        PAIR,
        "the model itself: embedded, a model directory, or a hub id",
        "embedded",
        metavar="SPEC",
    )
    out: str | None = option(
        None,
        RESULT,
        "DIR: a copy of the edge with the new thresholds; FILE.json: its card alone",
        "myedge",
        metavar="DIR_OR_FILE",
        unset="the edge's own streamer.json, where it is not the embedded one",
    )
    force: bool = option(False, RESULT, "replace the embedded edge's own thresholds")
    plot: str | None = option(
        None,
        RESULT,
        "the curves as a picture",
        "curves.png",
        metavar="FILE",
        unset="calibration.png in that directory, or FILE.png",
    )
    json: bool = option(False, RESULT, "one JSON object on stdout")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Config(cloud=self.cloud).has_cloud_here:
            told = "calibration needs the model itself: a directory or a hub id"
            raise ConfigError(f"--cloud is {self.cloud}; {told}")
