"""`streamer calibrate`. In: recordings, a risk. Out: thresholds in a card, a table, a plot.

The pair hears each recording once. Some of the recordings choose the signal, the others certify its
threshold (core/calibration/bounds.py says what is promised). Nothing is written unless everything
could be certified.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamer.assembly.models import Models
from streamer.audio.directory import recordings_in
from streamer.audio.file import AudioError
from streamer.calibrate.clips import Calibration, Clip, hear_clip
from streamer.calibrate.place import CalibrationError, Destination, place_of, write
from streamer.calibrate.report import report
from streamer.commands.calibrate_options import CalibrateOptions
from streamer.commands.process import fail
from streamer.config import Config
from streamer.core.calibration.bounds import least_risk, num_needed
from streamer.core.calibration.certify import (
    Certified,
    Turns,
    Uncertifiable,
    certify,
    choose_signal,
)
from streamer.core.decoding.gate import SIGNALS
from streamer.progress import Bar

CHOOSING = 4  # one clip of so many chooses the signal; the others certify
LEAST_CHOOSING = 8  # with fewer of them the signal is entropy


def run(options: CalibrateOptions) -> int:
    """The exit status: 0, or 1 where nothing was certified or a file failed. Raises ConfigError."""
    from streamer.model.checkpoint.weights import ModelError
    from streamer.model.thinker import resolve

    try:
        files = clips_of(options)
        models = Models(
            Config(mode="gated", edge=options.edge, cloud=options.cloud), calibrates=True
        )
        directory = resolve(options.edge, "edge")
        place = place_of(options, directory)
        found = calibrate(models, files, options)
        _write(models, directory, place, found.results)
    except (CalibrationError, ModelError) as error:
        fail(str(error))
        return 1
    report(found, place, options)
    return 1 if found.num_failed else 0


def clips_of(options: CalibrateOptions) -> list[str]:
    """The recordings, each once: the same one twice would count as two that agree by chance.

    Raises CalibrationError for a file that is not there, and for too few whatever they hold.
    """
    files = list(dict.fromkeys(file for clip in options.clips for file in recordings_in(clip)))
    for file in files:
        if Path(file).is_dir():
            raise CalibrationError(f"{file}: is a directory without recordings; give some")
        if not Path(file).exists() and file != "-":
            raise CalibrationError(f"{file}: no such file")
    _check_enough(len(files), options)
    return files


def _needed(options: CalibrateOptions) -> tuple[float, int]:
    """(the least risk that was asked for, the clips it needs)."""
    risk = min(options.risk, options.quality_risk or options.risk)
    return risk, num_needed(risk, options.confidence)


def _check_enough(num_clips: int, options: CalibrateOptions, why: str = "") -> None:
    risk, needed = _needed(options)
    if num_clips >= needed:
        return
    sure = f" with confidence {options.confidence:g}" if options.confidence else ""
    least = least_risk(num_clips, options.confidence)
    way = f"give more, or a risk of {least:g}" if least < 1 else "give more"
    told = f"{num_clips} clips{why} cannot certify a risk of {risk:g}{sure}"
    raise CalibrationError(f"{told}: {needed} are needed; {way}")


def calibrate(models: Models, files: list[str], options: CalibrateOptions) -> Calibration:
    """Hear all clips, choose, certify. Raises CalibrationError, ModelError."""
    clips, num_failed = _hear_all(models, files)
    _check_enough(len(clips), options, " with speech")
    choosing, certifying = _split(clips, options)
    smallest = min(map(len, _groups(certifying, options)))
    half = max(
        options.risk / 2, least_risk(len(certifying), options.confidence), least_risk(smallest)
    )
    risks = {"fluent": options.risk, "quality": options.quality_risk or min(options.risk, half)}
    _tell_what_was_left_out(options, len(certifying), bool(choosing), risks["quality"])
    results = []
    skipped = {}
    for preset, risk in risks.items():
        signal: str = options.signal
        if signal == "auto":
            signal = "entropy"
            if choosing:
                by_signal = {name: _turns(choosing, preset, name) for name in SIGNALS}
                signal, skipped[preset] = choose_signal(by_signal, risk)
        k = models.first.card.presets[preset].k
        try:
            turns = [_turns(group, preset, signal) for group in _groups(certifying, options)]
            results.append(certify(turns, preset, signal, k, risk, options.confidence))
        except Uncertifiable as error:
            raise CalibrationError(
                f"{error}; give a larger one, or use mode exact. Nothing was written"
            ) from None
    return Calibration(results, skipped, certifying, num_failed)


def _tell_what_was_left_out(
    options: CalibrateOptions, num_clips: int, has_chosen: bool, quality: float
) -> None:
    """Where the clips are too few for a default: what is done instead, and the way out."""
    half = options.risk / 2
    if options.quality_risk is None and quality > half:
        few = f"{num_clips} clips are too few for half of --risk ({half:g})"
        fail(f"{few}: preset quality keeps a risk of {quality:g}; give more, or --quality-risk")
    if options.signal == "auto" and not has_chosen:
        fail("too few clips to choose a signal: the gate looks at entropy; give more, or --signal")


def _groups(clips: list[Clip], options: CalibrateOptions) -> list[list[Clip]]:
    """All clips, or one group for each folder. Raises CalibrationError for too few in one."""
    if not options.by_folder:
        return [clips]
    groups: dict[Path, list[Clip]] = {}
    for clip in clips:
        groups.setdefault(Path(clip.file).parent, []).append(clip)
    risk = _needed(options)[0]
    for folder, group in sorted(groups.items()):
        if len(group) < (needed := num_needed(risk)):
            told = f"{len(group)} clips of {folder} cannot certify a risk of {risk:g}"
            raise CalibrationError(
                f"{told}: {needed} are needed beside those that choose the signal; give more"
            )
    return list(groups.values())


def _turns(clips: Sequence[Clip], preset: str, signal: str) -> list[Turns]:
    return [clip.paths[preset][signal] for clip in clips]


def _split(clips: list[Clip], options: CalibrateOptions) -> tuple[list[Clip], list[Clip]]:
    """(who choose the signal, who certify): a fixed shuffle, blind to what the clips hold."""
    spare = len(clips) - _needed(options)[1]
    num = min(len(clips) // CHOOSING, spare) if options.signal == "auto" else 0
    num = num if num >= LEAST_CHOOSING else 0
    order = np.random.default_rng(0).permutation(len(clips)).tolist()
    return [clips[i] for i in order[:num]], [clips[i] for i in order[num:]]


def _hear_all(models: Models, files: list[str]) -> tuple[list[Clip], int]:
    """(the clips with speech, how many files could not be read)."""
    clips: list[Clip] = []
    num_failed = 0
    with Bar("calibrating", len(files)) as bar:
        for i, file in enumerate(files):
            bar.show(i, f"{i} of {len(files)}")
            try:
                clip = hear_clip(models, file)
            except AudioError as error:
                fail(str(error))
                num_failed += 1
            else:
                clips += [clip] if clip else []
    if silent := len(files) - num_failed - len(clips):
        fail(f"{silent} of {len(files)} clips hold no speech and were left out")
    return clips, num_failed


def _write(models: Models, directory: Path, place: Destination, results: list[Certified]) -> None:
    from streamer.model.checkpoint.fingerprint import fingerprint_of

    cloud = models.pair[1]
    assert cloud is not None
    date = time.strftime("%Y-%m-%d", time.gmtime())
    gate = {
        r.preset: {
            r.signal: round(r.threshold, 6),
            "k": r.k,
            "promise": {
                "risk": r.risk,
                "confidence": r.confidence,
                "signal": r.signal,
                "num_clips": r.num_clips,
                "num_groups": r.num_groups,
                "date": date,
                "cloud": cloud.card.name,
                "fingerprint": fingerprint_of(cloud.directory),
            },
        }
        for r in results
    }
    write(place, directory, gate)
