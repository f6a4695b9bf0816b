"""Synthetic speech of espeak-ng and flite: the voices, the phrases they say, and the samples."""

import io
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

SAMPLE_RATE = 16_000
TIMEOUT_S = 20
# Names of languages in espeak-ng 1.51. Its plain "cmn" spells characters in pinyin and reads the
# tones as English numbers, "jin one tian one": twice the syllables of the text.
NAMES = {"cmn": "cmn-latn-pinyin"}
# Two statistical voices of flite train: without any, natural speech came out one level slow. A
# diphone voice (kal) and a statistical one (slt, a woman) never do.
TRAIN_FLITE = ("awb", "rms")
HELD_OUT_FLITE = ("slt", "kal")
HELD_OUT_VARIANTS = ("f4", "m6", "klatt3", "Andrea", "steph", "victor", "Hugo", "anika")
TRAIN_VARIANTS = (
    "m1 m2 m3 m4 m5 m7 m8 f1 f2 f3 f5 klatt klatt2 klatt4 klatt6 adam Alex Alicia Andy Annie "
    "antonio belinda benjamin boris caleb david Denis Diogo ed edward Gene grandma grandpa "
    "Gustave Henrique iven iven2 Jacky john kaukovalta Lee linda marcelo Marco Mario max "
    "michael michel miguel mike Mr Nguyen pablo paul pedro quincy rob robert sandro shelby "
    "steph2 Tweaky travis Zac norbert"
).split()
LANGUAGES = ("cmn", "cmn", "cmn", "en", "en-us", "es", "it", "id", "sw", "ms", "pt", "ro", "fi")
ZH = (
    "我们 今天 明天 下午 一起 朋友 家里 公园 学校 老师 学生 工作 时间 问题 办法 天气 下雨 阳光 "
    "春天 夏天 飞机 火车 汽车 地铁 车站 城市 乡村 山上 河边 大海 音乐 电影 故事 新闻 电脑 手机 "
    "电话 网络 医院 医生 身体 健康 早饭 晚饭 面条 米饭 水果 苹果 牛奶 咖啡 喝茶 房子 门口 窗户 "
    "桌子 椅子 衣服 鞋子 颜色 红色 白色 漂亮 好看 快乐 难过 生气 害怕 喜欢 知道 觉得 认为 希望 "
    "准备 开始 结束 继续 离开 回来 出发 到达 帮助 介绍 讨论 决定 选择 学习 练习 考试 跑步 游泳 "
    "爬山 旅行 照片 礼物 生日 节日 爸爸 妈妈 哥哥 妹妹 孩子 先生 小姐 经理 同事 邻居 客人 司机 "
    "警察 商店 超市 银行 价格 便宜 东西 很 在 去 来 说 看 想 要 会 能 也 都 还 就 从 把 被 给 "
    "和 跟 这 那 有 是 不 了 吗 吧"
).split()
EN = {  # words by their syllables
    1: (
        "day night house tree road time work friend rain cold warm book door light hand world "
        "school train long first good small great you they we take make find walk talk bring "
        "hold leave stay think"
    ).split(),
    2: (
        "morning water window garden city river music paper table people winter summer money "
        "letter story coffee little happy quiet under over after before follow remain begin "
        "again maybe travel market doctor"
    ).split(),
    3: (
        "yesterday tomorrow family holiday telephone important remember understand beautiful "
        "different hospital together computer potato banana example department another company "
        "general"
    ).split(),
    4: (
        "information conversation television education American particular population January "
        "experience economy community necessary"
    ).split(),
}
CONSONANTS = {"fi": "hklmnprstv", "es": "bdfglmnprst", "it": "bdfglmnprstv"}


@dataclass(frozen=True)
class Voice:
    """One voice of one engine; `language` picks the text, `base_hz` is its usual pitch."""

    engine: str  # "espeak" or "flite"
    language: str  # espeak-ng language, or "en"
    variant: str  # espeak-ng variant, or flite voice

    @property
    def name(self) -> str:
        return f"{self.engine}:{self.language}+{self.variant}"


def voices(held_out: bool) -> list[Voice]:
    """All voices of one side, in a fixed order."""
    if held_out:
        spoken = ("cmn", "en", "es")
        espeak = [Voice("espeak", lang, v) for v in HELD_OUT_VARIANTS for lang in spoken]
        return espeak + [Voice("flite", "en", v) for v in HELD_OUT_FLITE for _ in range(2)]
    espeak = [Voice("espeak", lang, v) for v in TRAIN_VARIANTS for lang in LANGUAGES]
    return espeak + [Voice("flite", "en", v) for v in TRAIN_FLITE for _ in range(60)]


def speak(voice: Voice, text: str, *, wpm: int = 160, pitch: int = 50) -> np.ndarray:
    """Say `text`; returns float32 [n_samples] at 16 kHz. Raises on an engine that fails or
    hangs.

    `wpm` is espeak-ng's words per minute (flite: a duration stretch from it), `pitch` its 0-99
    scale.
    """
    if voice.engine == "espeak":
        name = f"{NAMES.get(voice.language, voice.language)}+{voice.variant}"
        spoken = ["espeak-ng", "-v", name, "-s", str(wpm), "-p", str(pitch), "--stdout", text]
    else:
        stretch = f"duration_stretch={160 / wpm:.3f}"
        spoken = ["flite", "-voice", voice.variant, "--setf", stretch, "-t", text]
        spoken += ["-o", "/dev/stdout"]
    done = subprocess.run(spoken, capture_output=True, timeout=TIMEOUT_S, check=True)
    return read(io.BytesIO(done.stdout))


def read(file: Path | io.BytesIO) -> np.ndarray:
    """A recording's samples, mono, at 16 kHz."""
    samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    mono = samples.mean(1)
    if rate == SAMPLE_RATE:
        return mono
    return soxr.resample(mono, rate, SAMPLE_RATE).astype(np.float32)


def trim(samples: np.ndarray, margin_db: float = 30.0) -> np.ndarray:
    """Cut leading and trailing silence: frames of 10 ms more than `margin_db` under the loudest
    one."""
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    if not len(frames):
        return samples
    level = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    heard = np.flatnonzero(level > level.max() - margin_db)
    return samples[heard[0] * 160 : (heard[-1] + 1) * 160]


def phrase(language: str, num_syllables: int, rng: random.Random) -> tuple[str, int]:
    """One phrase of about `num_syllables`; returns (text, syllables in it)."""
    words, count = [], 0
    while count < num_syllables:
        word, syllables = _word(language, num_syllables - count, rng)
        words.append(word)
        count += syllables
    return ("" if language == "cmn" else " ").join(words), count


def _word(language: str, most: int, rng: random.Random) -> tuple[str, int]:
    """A word of at most `most` syllables, and how many it has."""
    if language == "cmn":
        word = rng.choice([word for word in ZH if len(word) <= most])
        return word, len(word)
    if language.startswith("en"):
        num = rng.randint(1, min(4, most))
        return rng.choice(EN[num]), num
    # Open syllables: in these languages one written vowel is one syllable, so the count is exact.
    num, letters = min(most, rng.randint(1, 4)), CONSONANTS.get(language, "bdfgklmnprst")
    word = "".join(rng.choice(letters) + rng.choice("aeiou") for _ in range(num))
    return word + (rng.choice("nrs") if rng.random() < 0.25 else ""), num
