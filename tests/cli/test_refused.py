"""Every command refuses what cannot be done: one line that names the cause, and nothing on stdout."""

import pytest
from places import SAMPLES

from streamer.cli import main
from streamer.model.thinker import resolve

EDGE = resolve("embedded", "edge")
# words -> exit status, a part of the line. Eight recordings stand for `clips`
CALLS = [
    ("describe", 2, "FILE"),
    ("describe x.wav --k 0", 2, "--k is 0"),
    ("describe x.wav --k 4.5", 2, "--k is 4.5; give a whole number"),
    ("describe x.wav --k 6 --k 7", 2, "--k is given twice; give it once"),
    ("describe x.wav --temperature -1", 2, "temperature"),
    ("describe x.wav --cloud none --mode exact", 2, "needs a cloud"),
    ("describe x.wav --cloud-key k", 2, "--cloud-key is for a verifier elsewhere"),
    ("serve --mode edge --cloud-audio lazy", 2, "--cloud-audio is for a verifier elsewhere"),
    # a typo; no option may be shortened: a short one today means two things tomorrow
    ("describe a.wav --mdoe exact", 2, "arguments: --mdoe exact; did you mean --mode?; see"),
    ("describe a.wav --quie", 2, "--quie; did you mean --quiet?; see"),
    ("serve --max-session=3", 2, "--max-session=3; did you mean --max-sessions?; see"),
    ("descibe a.wav", 2, "did you mean describe?; see streamer --help"),
    ("describe a.wav --mode gatd", 2, "'gatd'; did you mean gated?; choose one of gated, exact,"),
    ("describe -clip.wav", 2, "; ./-clip.wav would be the file; see streamer describe --help"),
    ("describe here.wav -clip.wav", 2, "; ./-clip.wav would be the file"),
    ("describe here.wav --timeline s.svg", 2, "give a name in .json, .vtt, .TextGrid or .png"),
    ("describe a.wav b.wav --timeline s.json", 2, "2 are given: give one recording"),
    ("describe a.wav --timeline nowhere/s.json", 2, "there is no directory nowhere"),
    ("compare here.wav", 2, "compare takes two recordings, not 1"),
    ("compare here.wav none.wav", 1, "none.wav: no such file"),
    ("label a.wav --out labels.txt", 2, "give a name in .jsonl, .csv or .parquet"),
    ("label - --out labels.csv", 2, "label reads files"),
    ("label here.wav --out nowhere/labels.csv", 2, "give a file that can be written"),
    ("label here.wav --out a.csv --intervals vtt --k 2", 2, "--k has no effect"),
    ("mcp /nowhere", 2, "/nowhere is no folder"),
    ("serve --host 0.0.0.0", 2, "set --api-key"),
    ("serve --cert x.pem", 2, "needs both"),
    ("serve --cert x.pem --key y.pem", 2, "cannot be used"),
    ("serve --max-sessions 0", 2, "1 to 1024"),
    ("serve --port 99999", 2, "0 to 65535"),
    ("serve --mode exact --cloud none", 2, "needs a cloud"),
    ("serve --pipeline nowhere.toml", 2, "cannot be read"),
    ("serve --port 0 --edge ./nowhere", 1, "no such model directory"),
    ("calibrate clips --risk 0", 2, "--risk is 0; it may be above 0 and below 1"),
    ("calibrate clips --risk nan", 2, "--risk is nan;"),
    ("calibrate clips --risk 0.5 --confidence 1", 2, "--confidence is 1;"),
    ("calibrate clips --risk 0.5 --cloud none", 2, "--cloud is none; calibration needs the model"),
    ("calibrate clips --risk 0.5 --cloud ws://x", 2, "--cloud is ws://x; calibration needs"),
    ("calibrate clips --risk 0.02", 1, "8 clips cannot certify a risk of 0.02: 49 are needed;"),
    ("calibrate clips --risk 0.2 --confidence 0.9", 1, "risk of 0.2 with confidence 0.9: "),
    ("calibrate clips --risk 0.5 --edge /nowhere", 1, "no such model directory"),
    ("calibrate clips --risk 0.5 --out /sys/streamer.json", 1, "/sys/streamer.json: cannot be"),
    ("calibrate clips --risk 0.5 --out /nowhere/x.json", 1, "(No such file or directory); choose"),
    ("calibrate clips --risk 0.5 --out .", 1, ".: is a directory that exists; calibrate what is"),
    ("calibrate clips --risk 0.5 --out /nowhere/x", 1, "/nowhere/x: cannot be written (No such"),
    ("calibrate clips --risk 0.5", 2, "thresholds come with streamer; --out myedge makes"),
    (f"calibrate clips --risk 0.5 --edge {EDGE}", 2, "(then --edge myedge)"),
    ("calibrate none.wav --risk 0.05", 1, "none.wav: no such file"),
    ("calibrate empty --risk 0.05", 1, "empty: is a directory without recordings; give some"),
    ("tune nothing --cloud embedded --out here", 1, "here exists"),
    ("tune nothing --cloud nowhere --out new", 1, "no such model directory"),
    ("tune empty --cloud embedded --out new", 1, "no recording there"),
    ("tune empty --cloud embedded --out no/new", 1, "cannot be written"),
    ("tune empty --cloud embedded --out new --speakers no", 2, "as a table"),
    ("tune empty --cloud embedded --out new --device cuda", 1, "no GPU"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current one: two recordings by name, a folder of eight, and two empty ones."""
    monkeypatch.chdir(tmp_path)
    for name in ("clips", "empty", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "-clip.wav").touch()
    (tmp_path / "here.wav").symlink_to(SAMPLES[0])
    for i in range(8):
        (tmp_path / "clips" / f"{i}.wav").symlink_to(SAMPLES[i % len(SAMPLES)])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "status", "told"), CALLS)
def test_a_call_that_cannot_be_is_one_line(words, status, told, capsys):
    try:
        found = main(words.split())
    except SystemExit as end:  # argparse's way
        found = end.code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert (found, out, len(lines)) == (status, "", 1)
    assert told in lines[0]
