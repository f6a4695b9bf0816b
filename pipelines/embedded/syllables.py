"""How many syllables a sentence has when read aloud, or None where that is not known.

Han characters are a syllable each, but for the 儿 that only curls the vowel before it. Elsewhere
espeak-ng says how the sentence is pronounced, and each vowel of that (a diphthong is one) is a
syllable.
"""

import re
import subprocess
import unicodedata
from functools import cache

# A language of Common Voice, and espeak-ng's name of it. Left out are scripts that do not write the
# vowels.
SAME = (
    "de es fr it pt nl pl cs ru uk tr fi et hu ro ca eu eo cy el ky tt lv lt sl vi ia hi ka ta id cv"
).split()
VOICES = {"en": "en-us", "sv-SE": "sv", **{name: name for name in SAME}}
HAN = ("zh-CN", "zh-TW", "zh-HK", "yue")
OPEN = ("rw", "lg", "tw")  # spelled as spoken, and each written vowel group is a syllable
CURLED = re.compile("(?<=[一这那哪点事块条味花玩会份劲头圈活伴片边样])儿(?![子女童歌科媳戏])")
VOWELS = "aeiouyæøœɐɑɒɔəɘɚɛɜɝɞɤɨɪɯɵʉʊʌʏᵻɶ"
JOINER, SYLLABIC = "\u200d", "\u0329"
# Corrections of espeak-ng's IPA, by voice. It writes the third tone with the sign of a vowel,
# diphthongs of Estonian, Lithuanian and Italian as two vowels, and Italian glides as vowels
# (storia has two syllables).
AS_SPOKEN = {
    "vi": (("ɜ", ""),),
    "cmn-latn-pinyin": (("ɜ", ""),),
    "et": ((f"([{VOWELS}])(?=[{VOWELS}])", rf"\1{JOINER}"),),
    "lt": (("([aeɛoɔ])(?:ː?j)?ˈ?(?=[iɪuʊ])", rf"\1{JOINER}"),),
    "it": (
        (f"(?<![ˈˌ])[iɪ](?=ˈ?[{VOWELS}])", "j"),
        (f"(?<![ˈˌ])[uʊ](?=ˈ?[{VOWELS}])", "w"),
        ("([aeɛoɔuʊ])(?=[iɪuʊ])", rf"\1{JOINER}"),
    ),
}


def counted(language: str) -> bool:
    """Whether `count` knows the language."""
    return language in HAN or language in VOICES or language in OPEN


def count(text: str, language: str) -> int | None:
    """Syllables of `text`, or None: no rule for the language, digits, or letters of another
    script."""
    if not text or any(c.isdigit() for c in text):
        return None
    if language in HAN:
        return _han(text)
    if language in VOICES:
        spoken = transcribed(text.lower(), VOICES[language])
        # espeak-ng changed to another language for a part it cannot read
        return None if "(" in spoken else nuclei(spoken) or None
    if language in OPEN:
        return len(re.findall("[aeiouɛɔ]+", text.lower())) or None
    return None


def _han(text: str) -> int | None:
    if any(c.isalpha() and "CJK" not in unicodedata.name(c, "") for c in text):
        return None
    characters = sum(c.isalpha() for c in text)
    return (characters - len(CURLED.findall(text))) or None


@cache
def transcribed(text: str, voice: str) -> str:
    """The text in IPA without tones, by espeak-ng's voice of that name."""
    command = ["espeak-ng", "-q", "--ipa=3", "-v", voice, "--", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    ipa = done.stdout
    for written, spoken in AS_SPOKEN.get(voice, ()):
        ipa = re.sub(written, spoken, ipa)
    return ipa


def nuclei(ipa: str) -> int:
    """Vowels of a transcription of espeak-ng; a zero-width joiner ties the parts of a diphthong, or
    a glide to its vowel."""
    number, before = 0, ""
    for sign in ipa:
        is_tied = before[-1:] == JOINER and before[0] in VOWELS
        number += (sign in VOWELS and not is_tied) or sign == SYLLABIC
        before = before + sign if sign == JOINER else sign
    return number
