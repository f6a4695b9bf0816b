"""Telephone codes against libsndfile's decoder, all 256 of each."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from streamer.core.audio.pcm import Law, from_g711


@pytest.mark.parametrize(("law", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_every_code_is_the_level_that_libsndfile_reads(law: Law, subtype: str) -> None:
    codes = bytes(range(256))
    raw = {"samplerate": 8_000, "channels": 1, "format": "RAW", "subtype": subtype}
    wanted, _ = soundfile.read(io.BytesIO(codes), dtype="float32", **raw)
    assert np.array_equal(from_g711(codes, law), wanted)


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_cut_or_whole_is_the_same(law: Law) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1_000, np.uint8).tobytes()
    pieces = [from_g711(data[:1], law), from_g711(data[1:1], law), from_g711(data[1:], law)]
    assert np.array_equal(np.concatenate(pieces), from_g711(data, law))
