"""A clone of recordings of people, as Common Voice lays it out; a synthesiser speaks for them."""

import subprocess

import soundfile

from pipelines.embedded.recordings import table
from pipelines.embedded.speak import SAMPLE_RATE, Voice, speak

SENTENCES = ("今天天气很好我们一起去公园", "明天下午三点老师在学校等你", "他昨天从北京坐火车回来了")
FILTERS = table()["filters"]


def say(text, variant="m3", wpm=170):
    return speak(Voice("espeak", "cmn", variant), text, wpm=wpm) * 0.5


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def clone_into(clones, speakers=tuple(f"person{i}" for i in range(8))):
    """(folder, row of the table): three sentences each, one a pointer, one too soft."""
    folder = clones / "someone+voices"
    (folder / "zh-CN" / "clips").mkdir(parents=True)
    rows = ["client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender"]
    for speaker, who in enumerate(speakers):
        for i, text in enumerate(SENTENCES):
            name = f"{speaker}_{i}.mp3"
            samples = say(text, f"m{1 + speaker % 4}", 150 + 10 * speaker)
            samples = samples * (1e-4 if (speaker, i) == (0, 2) else 1.0)
            soundfile.write(folder / "zh-CN" / "clips" / name, samples, SAMPLE_RATE, format="MP3")
            rows.append(f"{who}\t{name}\t{text}\t2\t0\t\t{'female' if speaker % 2 else 'male'}")
    pointer = folder / "zh-CN" / "clips" / f"{len(speakers) - 1}_2.mp3"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n")
    (folder / "zh-CN" / "validated.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "voices")
    source = {"id": "voices", "repository": "https://example.org/someone/voices", "cap": 60}
    source |= {"commit": git(folder, "rev-parse", "HEAD"), "paths": r"^zh-CN/clips/.*\.mp3$"}
    source |= {"layout": "common_voice", "base": "zh-CN", "language": "zh-CN"}
    return clones, source
