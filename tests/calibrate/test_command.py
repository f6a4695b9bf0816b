"""`streamer calibrate` on real recordings: what it writes, what that changes, what it refuses; the
promise that a gate then holds for its cloud model, k and threshold: others warn in one line.
"""

import json
import re
import shutil
import warnings

import pytest
import soundfile
import speech
from far import verifying
from processes import describe, run_here
from speech import SAMPLES

from streamer import Config, Describer
from streamer.assembly import Models, PromiseWarning
from streamer.commands.calibrate import hear_clip
from streamer.core.calibration import losses_of
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import fingerprint_of
from streamer.model.thinker import resolve


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Eight recordings of 2 to 4 s, a little slow or fast: edge and cloud differ on some."""
    folder, files = tmp_path_factory.mktemp("clips"), []
    for seed in range(8):
        files.append(str(folder / f"{seed}.wav"))
        samples, rate = speech.speech(2.0 + seed / 4, seed), (14_000, 21_000)[seed % 2]
        soundfile.write(files[-1], samples, rate)
    return files


@pytest.fixture
def edge(tmp_path):
    """A copy of the shipped edge that may be written to."""
    return shutil.copytree(resolve("embedded", "edge"), tmp_path / "edge")


def calibrate(*args):
    """(status, stdout, lines of stderr) of the command."""
    status, out, err = run_here("calibrate", *args)
    return status, out, err.splitlines()


def described(files, edge, *more):
    """The rows of gated mode for files."""
    status, rows, _ = describe(*files, "--edge", edge, *more)
    assert status == 0
    return rows


def test_a_calibrated_card_changes_what_gated_mode_uploads(clips, edge):
    file = edge / "streamer.json"
    before, uploads = json.loads(file.read_text("utf-8")), {}
    for risk in (0.2, 0.9):
        status, out, err = calibrate(*clips[:4], "--risk", risk, "--edge", edge)
        assert status == 0
        few = f"4 clips are too few for half of --risk ({risk / 2:g}): preset quality keeps a risk"
        wanted = [f"streamer: {few} of 0.2; give more"] if risk == 0.2 else []
        assert err == wanted  # four clips can keep .2 at the least
        threshold, loss = re.match(r"fluent: threshold ([^,]+), .* loss ([^,]+),", out).groups()
        assert float(loss) <= risk
        card = read_card(edge)
        assert card.presets["fluent"].threshold == pytest.approx(float(threshold), rel=1e-4)
        promise = card.promises["fluent"]
        assert (promise.risk, promise.num_clips, promise.cloud) == (risk, 4, "embedded-cloud")
        assert promise.fingerprint == fingerprint_of(resolve("embedded", "cloud"))
        uploads[risk] = sum(row["cloud_calls"] for row in described(clips[:4], edge))
    every = described(clips[:4], edge, "--threshold", "0")
    assert sum(row["cloud_calls"] for row in every) > uploads[0.2] >= uploads[0.9]
    after = json.loads(file.read_text("utf-8"))
    assert {**after, "gate": 0} == {**before, "gate": 0}, "the other fields stay"
    names = {path.name for path in edge.iterdir()}
    assert names == {path.name for path in resolve("embedded", "edge").iterdir()}


def test_a_copy_with_its_own_thresholds_has_the_figures_of_the_clips(clips, tmp_path):
    def held(directory):
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    models = Models(Config())
    found = [hear_clip(models, file) for file in clips[:3]]
    shipped, out = resolve("embedded", "edge"), tmp_path / "myedge"
    before = held(shipped)
    status, table, _ = calibrate(*clips[:3], "--risk", 0.4, "--out", out)
    assert status == 0
    card = out / "streamer.json"
    way = f"a model of its own: streamer describe FILE --edge {out}"
    assert table.endswith(f"written: {card}\n{way}\n")
    gate = json.loads(card.read_text("utf-8"))["gate"]
    for preset in ("fluent", "quality"):
        loss = losses_of([clip[preset] for clip in found], [gate[preset]["entropy"]]).mean()
        assert f"{loss:.4f}" in next(line for line in table.splitlines() if line.startswith(preset))
        assert (3 * loss + 1) / 4 <= gate[preset]["promise"]["risk"]
    assert gate["quality"]["promise"]["risk"] == 0.4, "half of it needs four clips"
    assert held(shipped) == before
    assert {**held(out), "streamer.json": 0} == {**before, "streamer.json": 0}
    assert read_card(out).promises["fluent"].num_clips == 3
    assert [path.name for path in tmp_path.iterdir()] == ["myedge"], "no half copy stays"
    assert described(clips[:1], out)[0]["text"]


def test_bad_and_silent_clips_are_left_out_with_a_line(clips, edge, tmp_path):
    (tmp_path / "text.wav").write_text("words")
    soundfile.write(tmp_path / "silence.wav", speech.recording(0) * 0, 16_000)
    bad = [tmp_path / "text.wav", tmp_path / "silence.wav"]
    status, out, err = calibrate(*bad, *clips[:3], "--risk", 0.5, "--edge", edge)
    assert status == 1, "a file failed"
    assert out.count(", 3 clips\n") == 2
    assert "text.wav" in err[0]
    assert err[1:] == ["streamer: 1 of 5 clips hold no speech and were left out"]


ANOTHER = r"the gate's promise was made for another cloud model \(embedded-cloud \w+, not \w+\); run streamer calibrate"


@pytest.fixture
def another_cloud(tmp_path):
    """The embedded cloud with another prompt: another model, as far as a promise goes."""
    directory = shutil.copytree(resolve("embedded", "cloud"), tmp_path / "cloud")
    card = json.loads((directory / "streamer.json").read_text("utf-8"))
    card["prompt"]["suffix"] += "说话人"
    (directory / "streamer.json").write_text(json.dumps(card), "utf-8")
    return directory


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"preset": "quality", "attributes": "acoustic"}, None),
        ({"threshold": 0.0}, None),  # it verifies more
        ({"mode": "exact", "k": 9, "attributes": "rate"}, None),
        ({"cloud": "none", "k": 9}, None),
        ({"attributes": "pitch,rate"}, "attributes rate,pitch"),
        ({"k": 7, "temperature": 0.8}, "k 7 and temperature 0.8"),
        ({"threshold": 5.0}, "threshold 5.0"),
    ],
)
def test_what_the_promise_was_not_made_for_warns_once(options, told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = Models(Config(**options))
        models.load()
        for _ in range(2):
            models.check_promise(models.plan.rules)
    found = [str(one.message) for one in caught if one.category is PromiseWarning]
    assert len(found) == (told is not None)
    assert all(f"was not made for {told}; leave that out" in line for line in found)


async def test_another_cloud_elsewhere_warns_once(another_cloud, caplog):
    with verifying("--cloud", another_cloud) as (url, _):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PromiseWarning)
            async with Describer.open(cloud=url) as describer:
                for file in SAMPLES[:2]:
                    assert (await describer.describe(file)).text
        (line,) = [str(one.message) for one in caught if one.category is PromiseWarning]
        assert re.fullmatch(ANOTHER, line)
        with warnings.catch_warnings(), caplog.at_level("WARNING", "streamer.notice"):
            warnings.simplefilter("error", PromiseWarning)  # the link's own task must bear it
            async with Describer.open(cloud=url) as describer:
                assert (await describer.describe(SAMPLES[0])).text
        assert re.fullmatch(ANOTHER, caplog.messages[-1])
