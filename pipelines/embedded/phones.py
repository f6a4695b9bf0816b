"""Broad phone classes of a text, for a network that learns where syllables lie.

espeak-ng transcribes the text. Its IPA becomes a short alphabet: eight classes of syllable nuclei
and ten of other sounds. Classes say what the spectrum shows (place of a vowel, manner of a
consonant), so that one alphabet serves all languages.
"""

import re
import unicodedata

from pipelines.embedded.syllables import HAN, JOINER, OPEN, SYLLABIC, VOICES, count, transcribed

NUCLEI = ("i", "e", "a", "o", "u", "ə", "diphthong", "syllabic consonant")
OTHERS = ("glide", "nasal", "liquid", "p", "b", "s", "z", "f", "h", "ts")
CLASSES = ("blank", *NUCLEI, *OTHERS)
NUM_NUCLEI = len(NUCLEI)
SIGNS = {
    "i": "iɪyʏ",
    "e": "eɛøœæ",
    "a": "aɐɑɶʌ",
    "o": "oɔɒɤ",
    "u": "uʊɯ",
    "ə": "əɘɜɵɨᵻɝɚʉɞ",
    "glide": "jɥʝwʍɰ",
    "nasal": "mɱnɳɲŋɴ",
    "liquid": "lɫɭʎɬɮʟrɹɾʀʁɻɽɺʋ",
    "p": "ptkqcʔʈ",
    "b": "bdɡgɖɟɢɓɗɠ",
    "s": "sʃʂɕ",
    "z": "zʒʐʑvð",
    "f": "fθxχɸçħβɣʕ",
    "h": "hɦ",
}
CLASS_OF = {sign: name for name, signs in SIGNS.items() for sign in signs}
LETTERS = CLASS_OF | {"y": "glide", "j": "b", "x": "p"}  # where they are no signs of the IPA


def phones(text: str, language: str) -> list[int]:
    """Indices into CLASSES, never 0; [] where the language has no rule here, or where the nuclei
    found are not as many as `syllables.count` says."""
    number = count(text, language)
    if not number:
        return []
    if language in OPEN:
        names = _of_letters(transcribed(text, language))
    elif language in HAN[2:]:
        return []
    else:
        names = _of_ipa(transcribed(text.lower(), VOICES.get(language, "cmn-latn-pinyin")))
    found = [CLASSES.index(name) for name in names]
    return found if sum(index <= NUM_NUCLEI for index in found) == number else []


def _of_ipa(ipa: str) -> list[str]:
    """Signs that a joiner ties are one sound: a diphthong, or an affricate."""
    sounds: list[str] = []
    joined = False
    for sign in ipa:
        if sign == JOINER:
            joined = True
        elif sign == SYLLABIC:
            if sounds and sounds[-1] not in NUCLEI:
                sounds.pop()
            sounds.append("syllabic consonant")
        elif sign in CLASS_OF:
            if joined and sounds:
                sounds[-1] = _tied(sounds[-1], CLASS_OF[sign])
            else:
                sounds.append(CLASS_OF[sign])
            joined = False
        elif unicodedata.category(sign)[0] != "M":
            joined = False
    return sounds


def _tied(first: str, second: str) -> str:
    if second in NUCLEI:
        return "diphthong" if first in NUCLEI and first != second else second
    if first in NUCLEI:
        return first
    return "ts" if first in "pb" and second in ("s", "z", "f") else first


def _of_letters(text: str) -> list[str]:
    """Languages whose spelling is their pronunciation: a group of vowels is one nucleus."""
    sounds = []
    for part in re.findall("[aeiouɛɔ]+|[a-z]|ŋ", text):
        is_diphthong = len(set(part)) > 1
        sounds.append("diphthong" if is_diphthong else LETTERS[part[0]])
    return sounds
