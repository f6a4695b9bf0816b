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
COUNTED = (*HAN, *OPEN, *VOICES)  # what `count` knows
CURLED = re.compile("(?<=[一这那哪点事块条味花玩会份劲头圈活伴片边样])儿(?![子女童歌科媳戏])")
VOWELS = "aeiouyæøœɐɑɒɔəɘɚɛɜɝɞɤɨɪɯɵʉʊʌʏᵻɶ"
JOINER, SYLLABIC = "\u200d", "\u0329"
# A vowel at a word's end is one syllable with an unstressed one that begins the next word.
MERGED = (f"(?<!{JOINER})([{VOWELS}]\u0303?) ˌ?([{VOWELS}])", rf"\1{JOINER}\2")
# Corrections of espeak-ng's IPA, by voice. It writes the third tone with the sign of a vowel,
# diphthongs of Estonian, Lithuanian, Basque and Romanian as two vowels, glides of Italian and French
# as vowels (storia and nuit have two and one), vowels of Catalan and Hindi as glides, the end of
# kaikkien (Finnish) and of idea as a diphthong, and a vowel after the r of sorte (Portuguese).
AS_SPOKEN = {
    **dict.fromkeys(("vi", "cmn-latn-pinyin"), (("ɜ", ""),)),
    "et": ((f"([{VOWELS}])(?=[{VOWELS}])", rf"\1{JOINER}"),),
    "lt": (("([aeɛoɔ])(?:ː?j)?ˈ?(?=[iɪuʊ])", rf"\1{JOINER}"),),
    "it": (
        (f"(?<![ˈˌ])[iɪ](?=[ˈˌ]?[{VOWELS}])", "j"),
        (f"(?<![ˈˌ])[uʊ](?=[ˈˌ]?[{VOWELS}])", "w"),
        ("([aeɛoɔuʊ])(?=[iɪuʊ])", rf"\1{JOINER}"),
        MERGED,
    ),
    "en-us": ((f"((?<![nl])i|a{JOINER}ɪ){JOINER}(?=ə(?![ɹl{JOINER}]))", r"\1"),),
    "es": (MERGED,),
    "pt": (("ɾə", "ɾ"), MERGED),
    "ca": ((f"(?<=[^\\W{VOWELS}])j(?=[ˈˌ]?[{VOWELS}])", "i"), MERGED),
    "eu": (("u[ˈˌ]?(?=i)", f"u{JOINER}"), (MERGED[0].replace("ˌ", "[ˈˌ]"), MERGED[1])),
    "ro": ((f"(?<=[{VOWELS}])u(?=ˌ?ə)", "w"),),
    "fr": ((f"(?<![ptkbdɡfv][ʁl])y(?=ˈ?[{VOWELS}])|y(?=ˈ?i)", "ɥ"),),
    "fi": ((f"(?<![ˈˌ])i{JOINER}e(?=[nmŋ])", "ie"),),
    "hi": (("(?<=ː)w", "o"),),
}


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
        return len(re.findall("[aeiouɛɔ]+", transcribed(text, language))) or None
    return None


def _han(text: str) -> int | None:
    if any(c.isalpha() and "CJK" not in unicodedata.name(c, "") for c in text):
        return None
    characters = sum(c.isalpha() for c in text)
    return (characters - len(CURLED.findall(text))) or None


@cache
def transcribed(text: str, voice: str) -> str:
    """The text in IPA without tones, by espeak-ng's voice of that name; of OPEN, the letters. In Luganda
    and Kinyarwanda a word loses its last vowel where the next one begins with a vowel."""
    if voice in OPEN:
        return text.lower() if voice == "tw" else re.sub("[aeiou]+ (?=[aeiou])", "", text.lower())
    if voice in ("ru", "uk"):  # it would read the name of a letter that is a word
        text = re.sub(r"(?<=\bк) | (?=[бж]\b)", "", text)
    command = ["espeak-ng", "-q", "--ipa=3", "-v", voice, "--", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    ipa = done.stdout
    for written, spoken in AS_SPOKEN.get(voice, ()):
        ipa = re.sub(written, spoken, ipa)
    return ipa


def nuclei(ipa: str) -> int:
    """Vowels of a transcription of espeak-ng; a zero-width joiner ties the parts of a diphthong, or
    a glide to its vowel."""
    ipa = re.sub("[ː\u0303]", "", ipa)
    return len(re.findall(f"(?<![{VOWELS}]{JOINER})[{VOWELS}]|{SYLLABIC}", ipa))
