"""`streamer calibrate`: recordings and a risk give the thresholds in a model's card.

The pair listens to each recording once (core/calibration.py states the promise). Nothing is
written unless everything could be certified.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamer.assembly.models import Models
from streamer.audio.file import AudioError, open_audio
from streamer.commands.options import CalibrateOptions
from streamer.commands.process import Failed, fail, put, put_json, recordings_of
from streamer.commands.screen import aligned
from streamer.config import Config, ConfigError
from streamer.core.calibration import Certified, Paths, certify, num_needed, paths_of
from streamer.core.measures.levels import level_weights
from streamer.model.checkpoint.card import write_gate
from streamer.model.checkpoint.weights import ModelError, fingerprint_of
from streamer.model.offline import hear_parts, shadow
from streamer.model.thinker import resolve
from streamer.progress import Bar
from streamer.recording import chunks_of

CARD = "streamer.json"
HEAD = ("preset", "threshold", "k", "risk", "loss", "skipped", "accepted / uploaded", "clips")
PROMISE = (
    "promise: for a clip like these, the expected share of blocks that skip the cloud although it "
    "would have changed them is at most the risk"
)
Clip = dict[str, list[Paths]]  # preset -> the paths of each turn, under every threshold


def run(options: CalibrateOptions) -> int:
    """The exit status: 1 if a file failed. Raises ConfigError, ModelError, Failed."""
    files = clips_of(options)
    config = Config(mode="gated", edge=options.edge, cloud=options.cloud, language=options.language)
    models = Models(config)
    directory = resolve(options.edge, "edge")
    card, copy = place_of(options, directory)
    models.load()
    results, num_failed = calibrate(models, files, options)
    write(card, copy, directory, gate_of(models, results), models.language)
    report(results, card, copy, options)
    return 1 if num_failed else 0


def clips_of(options: CalibrateOptions) -> list[str]:
    """The recordings, each once: a second copy would count as a clip that agrees. Raises Failed for
    too few."""
    files = list(dict.fromkeys(recordings_of(options.files)))
    _check_enough(len(files), options)
    return files


def _check_enough(num_clips: int, options: CalibrateOptions, why: str = "") -> None:
    needed = num_needed(options.risk, options.confidence)
    if num_clips < needed:
        sure = f" with confidence {options.confidence:g}" if options.confidence else ""
        told = f"{num_clips} clips{why} cannot certify a risk of {options.risk:g}{sure}"
        raise Failed(f"{told}: {needed} are needed; give more, or a larger risk")


def calibrate(
    models: Models, files: list[str], options: CalibrateOptions
) -> tuple[list[Certified], int]:
    """(a certificate for each preset, how many files could not be read). Raises Failed,
    ModelError."""
    clips, num_failed = _hear_all(models, files)
    _check_enough(len(clips), options, " with speech")
    results = []
    risks = {"fluent": options.risk, "quality": _quality_risk(len(clips), options)}
    for preset, risk in risks.items():
        k = models.first.card.speaking(models.language).presets[preset].k
        turns = [clip[preset] for clip in clips]
        certified = certify(turns, preset, k, risk, options.confidence)
        if certified is None:
            told = f"no threshold keeps a risk of {risk:g} for preset {preset}; give a larger one"
            raise Failed(f"{told}, or use mode exact. Nothing was written")
        results.append(certified)
    return results, num_failed


def _quality_risk(num_clips: int, options: CalibrateOptions) -> float:
    """The risk of preset quality: half of --risk, or all of it if there are too few clips."""
    half = options.risk / 2
    if num_clips >= num_needed(half, options.confidence):
        return half
    few = f"{num_clips} clips are too few for half of --risk ({half:g})"
    fail(f"{few}: preset quality keeps a risk of {options.risk:g}; give more")
    return options.risk


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
    edge = models.first
    card = edge.card.speaking(models.language)
    plans = {name: models.plan_in(models.language, preset) for name, preset in card.presets.items()}
    found: Clip = {name: [] for name in plans}
    with open_audio(file) as audio:
        heard = hear_parts(
            models.thinkers, chunks_of(audio), measures=True, language=models.language
        )
        for (drafter, target), closed in heard:
            assert closed.measures is not None
            weights = level_weights(closed.measures(), card.attributes)
            for name, plan in plans.items() if closed.has_speech else ():
                block_at = shadow(drafter, target, plan, weights)
                found[name].append(paths_of(block_at, edge.vocabulary, plan.rules))
    return found if all(found.values()) else None


def place_of(options: CalibrateOptions, directory: Path) -> tuple[Path, Path | None]:
    """(the card to write, the new directory of the model if there is one), checked before the work.
    Raises ConfigError, Failed."""
    card, copy = Path(options.out or directory / CARD), None
    if options.out is None and directory.resolve() == resolve("embedded", "edge").resolve():
        told = "the embedded edge's thresholds come with streamer"
        way = "--out myedge makes a copy of it with yours (then --edge myedge)"
        raise ConfigError(f"{told}; {way}")
    if card.is_dir():
        raise Failed(f"{card}: is a directory that exists; name one that does not exist yet")
    if card.suffix != ".json" and not card.exists():
        card, copy = card / CARD, card
    try:
        tempfile.TemporaryFile(dir=(copy or card).parent).close()
    except OSError as error:
        reason = f"cannot be written ({error.strerror}); choose another place with --out"
        raise Failed(f"{copy or card}: {reason}") from None
    return card, copy


def gate_of(models: Models, results: list[Certified]) -> dict[str, Any]:
    """The field `gate` of a card: thresholds, k, and the promise with its date."""
    cloud = models.pair[1]
    assert cloud is not None
    common = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cloud": cloud.card.name,
        "fingerprint": fingerprint_of(cloud.directory),
    }
    kept = ("risk", "confidence", "num_clips")
    return {
        r.preset: {
            "entropy": round(r.threshold, 6),
            "k": r.k,
            "promise": {**{name: getattr(r, name) for name in kept}, **common},
        }
        for r in results
    }


def write(
    card: Path, copy: Path | None, directory: Path, gate: Mapping[str, Any], language: str
) -> None:
    """The card with `gate` for a language in it; a copy appears whole or not at all. Raises
    ModelError."""
    if copy is None:
        write_gate(directory, card, gate, language)
        return
    try:
        with tempfile.TemporaryDirectory(dir=copy.parent, prefix=f".{copy.name}-") as half:
            made = Path(half) / "edge"
            shutil.copytree(directory, made, copy_function=shutil.copyfile)
            write_gate(directory, made / CARD, gate, language)
            made.rename(copy)
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or "some files could not be copied"
        told = f"cannot be written ({reason}); choose another place with --out"
        raise ModelError(copy, told) from None


def report(
    results: list[Certified], card: Path, copy: Path | None, options: CalibrateOptions
) -> None:
    if options.json:
        rows = [asdict(result) for result in results]
        put_json({"written": str(card), "presets": rows}, indent=2)
        return
    table = [HEAD]
    for r in results:
        shares = (f"{r.risk:g}", f"{r.loss:.4f}", f"{r.skipped:.3f}")
        accepted = "" if r.accepted is None else f"{r.accepted:.3f}"
        table.append((r.preset, f"{r.threshold:g}", str(r.k), *shares, accepted, str(r.num_clips)))
    for line in aligned(table):
        put(line.removeprefix("  "))
    sure = results[0].confidence
    more = f"; with confidence {sure:g} so is the mean over all such clips" if sure else ""
    put(f"{PROMISE}{more}")
    put(f"written: {card}")
    if copy is not None:
        put(f"a model of its own: streamer describe FILE --edge {copy}")
