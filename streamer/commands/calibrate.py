"""`streamer calibrate`: recordings and a risk give the thresholds in a model's card.

The pair listens to each recording once (core/calibration.py states the promise). Nothing is
written unless everything could be certified.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamer.assembly import Models
from streamer.audio.file import AudioError, chunks_of, open_audio
from streamer.commands.options import CalibrateOptions
from streamer.commands.process import Failed, fail, put, recordings_of
from streamer.config import Config, ConfigError
from streamer.core.calibration import Certified, Paths, certify, num_needed, paths_of
from streamer.core.measures.levels import level_weights
from streamer.model.checkpoint.card import FILE, write_gate
from streamer.model.checkpoint.weights import fingerprint_of
from streamer.model.decoding import shadow
from streamer.model.listener import hear_parts
from streamer.model.thinker import resolve
from streamer.progress import Bar

PROMISE = (
    "promise: for a clip like these, the expected share of blocks that skip the cloud although it "
    "would have changed them is at most the risk"
)
Clip = dict[str, list[Paths]]  # preset -> the paths of each turn, under every threshold


def run(options: CalibrateOptions) -> int:
    """The exit status: 1 if a file failed. Raises ConfigError, ModelError, Failed."""
    # each once: a second copy would count as a clip that agrees
    files = list(dict.fromkeys(recordings_of(options.files)))
    _check_enough(len(files), options)
    config = Config(mode="gated", edge=options.edge, cloud=options.cloud, language=options.language)
    models = Models(config)
    edge = resolve(options.edge, "edge")
    target = target_of(options, edge)
    models.load()
    clips, num_failed = _hear_all(models, files)
    _check_enough(len(clips), options, " with speech")
    results = _certified(models, clips, options)
    write(edge, target, gate_of(models, results), models.language)
    report(results, target, options)
    return 1 if num_failed else 0


def _check_enough(num_clips: int, options: CalibrateOptions, why: str = "") -> None:
    needed = num_needed(options.risk, options.confidence)
    if num_clips < needed:
        sure = f" with confidence {options.confidence:g}" if options.confidence else ""
        told = f"{num_clips} clips{why} cannot certify a risk of {options.risk:g}{sure}"
        raise Failed(f"{told}: {needed} are needed; give more, or a larger risk")


def _certified(models: Models, clips: list[Clip], options: CalibrateOptions) -> list[Certified]:
    """A certificate for each preset. Raises Failed where a threshold keeps no risk."""
    # preset quality keeps half of --risk, or all of it if there are too few clips
    half = options.risk / 2
    risks = {"fluent": options.risk, "quality": half}
    if len(clips) < num_needed(half, options.confidence):
        risks["quality"] = options.risk
        few = f"{len(clips)} clips are too few for half of --risk ({half:g})"
        fail(f"{few}: preset quality keeps a risk of {options.risk:g}; give more")
    results = []
    for preset, risk in risks.items():
        k = models.first.card.speaking(models.language).presets[preset].k
        certified = certify([clip[preset] for clip in clips], preset, k, risk, options.confidence)
        if certified is None:
            told = f"no threshold keeps a risk of {risk:g} for preset {preset}; give a larger one"
            raise Failed(f"{told}, or use mode exact. Nothing was written")
        results.append(certified)
    return results


def _hear_all(models: Models, files: list[str]) -> tuple[list[Clip], int]:
    """(the clips with speech, the number of files that could not be read)."""
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


def hear_clip(models: Models, file: str) -> Clip | None:
    """One recording at every threshold; None if it holds no speech. Raises AudioError."""
    edge, language = models.first, models.language
    card = edge.card.speaking(language)
    plans = {name: models.plan_in(language, preset) for name, preset in card.presets.items()}
    found: Clip = {name: [] for name in plans}
    with open_audio(file) as audio:
        heard = hear_parts(models.thinkers, chunks_of(audio), measures=True, language=language)
        for (drafter, target), closed in heard:
            assert closed.measures is not None
            weights = level_weights(closed.measures(), card.attributes)
            for name, plan in plans.items() if closed.has_speech else ():
                block_at = shadow(drafter, target, plan, weights)
                found[name].append(paths_of(block_at, edge.vocabulary, plan.rules))
    return found if all(found.values()) else None


def target_of(options: CalibrateOptions, edge: Path) -> Path:
    """The directory of the card to write, checked before the work. Raises ConfigError, Failed."""
    target = edge if options.out is None else Path(options.out)
    if options.out is not None and target.exists():
        raise Failed(f"{target} exists; name a directory that does not exist yet")
    if target.resolve() == resolve("embedded", "edge").resolve():
        told = "the embedded edge's thresholds come with streamer"
        way = "--out myedge makes a copy of it with yours (then --edge myedge)"
        raise ConfigError(f"{told}; {way}")
    try:
        tempfile.TemporaryFile(dir=edge if target == edge else target.parent).close()
    except OSError as error:
        raise _not_written(target, error) from None
    return target


def _not_written(place: Path, error: OSError) -> Failed:
    reason = error.strerror or "some files could not be copied"
    return Failed(f"{place}: cannot be written ({reason}); choose another place with --out")


def gate_of(models: Models, results: list[Certified]) -> dict[str, Any]:
    """The field `gate` of a card: thresholds, k, and the promise with its date."""
    cloud = models.thinkers[1]
    made = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cloud": cloud.card.name,
        "fingerprint": fingerprint_of(cloud.directory),
    }
    gate = {}
    for r in results:
        kept = {"risk": r.risk, "confidence": r.confidence, "num_clips": r.num_clips}
        gate[r.preset] = {"entropy": round(r.threshold, 6), "k": r.k, "promise": kept | made}
    return gate


def write(edge: Path, target: Path, gate: Mapping[str, Any], language: str) -> None:
    """Write `gate` for a language; a copy appears whole or never. Raises ModelError, Failed."""
    if target == edge:
        write_gate(edge, gate, language)
        return
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as half:
            made = Path(half) / "edge"
            shutil.copytree(edge, made, copy_function=shutil.copyfile)
            write_gate(made, gate, language)
            made.rename(target)
    except OSError as error:  # shutil.Error is one
        raise _not_written(target, error) from None


def report(results: list[Certified], target: Path, options: CalibrateOptions) -> None:
    for r in results:
        told = f"{r.preset}: threshold {r.threshold:g}, k {r.k}, risk {r.risk:g}, loss {r.loss:.4f}"
        told += f", skipped {r.skipped:.3f} of all blocks"
        if r.accepted is not None:
            told += f", accepted {r.accepted:.3f} of the tokens uploaded"
        put(f"{told}, {r.num_clips} clips")
    sure = options.confidence
    more = f"; with confidence {sure:g} so is the mean over all such clips" if sure else ""
    put(f"{PROMISE}{more}")
    put(f"written: {target / FILE}")
    if options.out is not None:
        put(f"a model of its own: streamer describe FILE --edge {target}")
