"""Tags of other projects' tables, for what is measured here.

dataspeech (its examples/tags_to_annotations, v02) puts the SNR and the SD of F0 of an utterance
into bins and names them. Its speaking rate counts characters of IPA and its reverberation needs a
model, so neither has a tag here. Its pitch bins need the speaker's sex.
"""

from __future__ import annotations

from bisect import bisect_right

# tag -> (the column it is made of, lower bounds of all bins but the first, their words)
DATASPEECH = {
    "noise": (
        "snr",
        (25.401, 33.675, 41.949, 50.222, 58.496, 66.770),
        (
            *("very noisy", "noisy", "slightly noisy", "balanced in clarity"),
            *("slightly clean", "clean", "very clean"),
        ),
    ),
    "speech_monotony": (
        "utterance_pitch_std",
        (20.379, 40.758, 70.0, 90.0),
        (
            *("very monotone", "monotone", "slightly expressive and animated"),
            *("expressive and animated", "very expressive and animated"),
        ),
    ),
}


def dataspeech_tags(row: dict[str, float | None]) -> dict[str, str | None]:
    """noise and speech_monotony from a row's `snr` in dB and `utterance_pitch_std` in Hz; None
    where that is unknown."""
    found: dict[str, str | None] = {}
    for name, (column, bounds, words) in DATASPEECH.items():
        value = row.get(column)
        found[name] = None if value is None else words[bisect_right(bounds, value)]
    return found
