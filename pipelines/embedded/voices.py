"""In: nothing. Out: the voices there are, and which of them training never hears."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Voice:
    """One voice of one engine; `language` picks the text, `base_hz` is its usual pitch."""

    engine: str  # "espeak" or "flite"
    language: str  # espeak-ng language, or "en"
    variant: str  # espeak-ng variant, or flite voice
    held_out: bool = False

    @property
    def name(self) -> str:
        return f"{self.engine}:{self.language}+{self.variant}"


# Of flite, a diphone voice (kal) and a statistical one (slt, a woman) are never heard in training;
# two statistical ones are: without any, natural speech came out one level slow.
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


def voices(held_out: bool) -> list[Voice]:
    """All voices of one side, in a fixed order."""
    if held_out:
        espeak = [
            Voice("espeak", lang, v, True)
            for v in HELD_OUT_VARIANTS
            for lang in ("cmn", "en", "es")
        ]
        return espeak + [Voice("flite", "en", v, True) for v in HELD_OUT_FLITE for _ in range(2)]
    espeak = [Voice("espeak", lang, v) for v in TRAIN_VARIANTS for lang in LANGUAGES]
    return espeak + [Voice("flite", "en", v) for v in TRAIN_FLITE for _ in range(60)]
