"""A timeline as captions that another's parser reads; its JSON: tests/timeline/test_write.py."""

import io

import numpy as np
import webvtt

from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.timeline import Curves, TimedTurn, Timeline, captions

MEASURES = SpeechMeasures(5.06, 210.4, 2.31, 8.0, -23.2, 20.0, 0.118, 2, 0.5, speech_s=3.0)


def timeline(*texts, num=400):
    f0 = np.where(np.arange(num) % 3 == 0, 0, 210).astype(np.float32)
    speech = np.ones(num, bool)
    speech[100:150] = False
    flat = np.full(num, 1e-4, np.float32)
    curves = Curves(0.01, f0, flat, speech, np.zeros(num, np.uint8))
    turns = [
        TimedTurn(i * 60.0, i * 60.0 + 59.9996, text, {"rate": 2, "pitch": None}, MEASURES)
        for i, text in enumerate(texts)
    ]
    return Timeline("clip.wav", 60.0 * len(texts), curves, turns)


def test_captions_are_read_by_a_parser():
    text = captions([timeline("说话人语速适中。", "", "a & b --> <i>\n\nc")])
    first, third = webvtt.from_string(text).captions
    assert (first.start, first.end) == ("00:00:00.000", "00:01:00.000")
    assert first.raw_text == (
        "说话人语速适中。\n5.1 音节/秒，210 赫兹，起伏 2.3 半音，-23 分贝，停顿 12%"
    )
    assert (third.identifier, third.start) == ("3", "00:02:00.000")
    assert third.raw_text.startswith("a &amp; b --&gt; &lt;i&gt; c\n5.1")


def test_captions_go_on_past_an_hour_and_nothing_has_none():
    long = captions([timeline(*["x"] * 62)])
    assert webvtt.from_string(long).captions[-1].start == "01:01:00.000"
    assert not webvtt.from_buffer(io.StringIO(captions([timeline()]))).captions
