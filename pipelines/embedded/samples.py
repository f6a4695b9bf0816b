"""Write four short recordings to `samples/`, clearly different, of voices training never hears."""

from pathlib import Path

import numpy as np
import soundfile

from pipelines.embedded.speak import SAMPLE_RATE, Voice, speak, trim

SAMPLES = Path("samples")


def set_level(samples: np.ndarray, dbfs: float) -> np.ndarray:
    """Scale to `dbfs` RMS, and leave 0.15 s of silence at both ends."""
    rms = np.sqrt(np.mean(samples**2)) + 1e-9
    edge = np.zeros(int(0.15 * SAMPLE_RATE), np.float32)
    return np.concatenate([edge, np.clip(samples / rms * 10 ** (dbfs / 20), -0.98, 0.98), edge])


def main() -> None:
    SAMPLES.mkdir(exist_ok=True)
    slow = trim(
        speak(Voice("flite", "en", "rms"), "I would rather stay at home, and rest.", wpm=90)
    )
    hurry = "快点快点，比赛马上就要开始了，大家跟我来！"
    fast = trim(speak(Voice("espeak", "cmn", "f4"), hurry, wpm=330, pitch=85))
    train = "The morning train leaves at nine from the second platform."
    plain = trim(speak(Voice("flite", "en", "slt"), train))
    hesitant = Voice("espeak", "cmn", "m6")
    parts = [trim(speak(hesitant, text, wpm=190)) for text in ("让我想想", "昨天下午", "他来过")]
    gap = np.zeros(int(0.5 * SAMPLE_RATE), np.float32)
    pauses = np.concatenate([parts[0], gap, parts[1], gap, parts[2]])
    levels = {
        "slow_soft": (slow, -38),
        "fast_loud": (fast, -16),
        "pauses": (pauses, -25),
        "plain": (plain, -24),
    }
    for name, (samples, dbfs) in levels.items():
        soundfile.write(
            SAMPLES / f"{name}.wav", set_level(samples, dbfs), SAMPLE_RATE, subtype="PCM_16"
        )
        print(name, round(len(samples) / SAMPLE_RATE, 2), "s")


if __name__ == "__main__":
    main()
