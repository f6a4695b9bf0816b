"""Chinese for what stands beside a Chinese sentence: the words of tables, units and warnings.

A text is known by its English form. The page takes WARNINGS from the server (chinese.json), for it
shows all in its own language. A command's errors, help and logs are English.
"""

from __future__ import annotations

from collections.abc import Mapping

CHINESE: Mapping[str, str] = {
    # attributes
    "rate": "语速",
    "pitch": "音高",
    "variation": "语调",
    "loudness": "音量",
    "pauses": "停顿",
    "timbre": "音色",
    "arousal": "情绪",
    # units
    "syllables/s": "音节/秒",
    "Hz": "赫兹",
    "semitones": "半音",
    "dBFS": "分贝",
    "% of the time": "% 的时间",
    "dB": "分贝",
    # how sure a word is
    "sure": "确定",
    "likely": "很可能",
    "unsure": "不确定",
    # the line below a table
    "{:.1f} s of speech in {:.1f} s": "{1:.1f} 秒中说话 {0:.1f} 秒",
    "noise {:.0f} dB below the speech": "噪声比语音低 {0:.0f} 分贝",
    "1 pause": "1 次停顿",
    "{:d} pauses": "{0:d} 次停顿",
    "the longest {:.1f} s": "最长 {0:.1f} 秒",
    "pitch spans {:.0f} semitones": "音高跨度 {0:.0f} 半音",
    "loudness spans {:.0f} dB": "音量跨度 {0:.0f} 分贝",
    "{:.2f} % clipped": "{0:.2f}% 削波",
    "pitch compared with all voices": "音高与所有人的嗓音相比",
    "no speech": "没有人说话",
    "{:.1f} s": "{0:.1f} 秒",
    "the line is pitch, the area loudness": "线是音高，面积是音量",
    # measures in a line
    "{:.1f} syllables/s": "{0:.1f} 音节/秒",
    "{:.0f} Hz": "{0:.0f} 赫兹",
    "SD {:.1f} semitones": "起伏 {0:.1f} 半音",
    "{:.0f} dBFS": "{0:.0f} 分贝",
    "{:.0f} % pauses": "停顿 {0:.0f}%",
    # pitch for one voice
    "pitch {} for this voice: {:+.1f} semitones from {:.0f} Hz": (
        "在这个嗓音中音高{0}：与 {2:.0f} 赫兹相差 {1:+.1f} 半音"
    ),
    "pitch for this voice unknown: auto needs two turns or more, or give HZ": (
        "不知道这个嗓音平时的音高：auto 至少需要两轮话，也可以给出 HZ"
    ),
    "very low": "很低",
    "low": "偏低",
    "usual": "如常",
    "high": "偏高",
    "very high": "很高",
    # calls, filled pauses
    "between channels: talk {}, overlap {:.0%}": "声道之间：说话 {0}，重叠 {1:.0%}",
    "dead air {} time, {:.1f} s": "冷场 {0} 次，{1:.1f} 秒",
    "dead air {} times, {:.1f} s": "冷场 {0} 次，{1:.1f} 秒",
    "gap {:.1f} s (median)": "间隔 {0:.1f} 秒（中位数）",
    "interruptions {}": "打断 {0}",
    "filled pauses: {}": "填充停顿：{0} 次",
    "{:.1f} per minute": "每分钟 {0:.1f} 次",
    "at {} s": "在 {0} 秒",
    # two takes
    "slower": "更慢",
    "faster": "更快",
    "lower": "更低",
    "higher": "更高",
    "flatter": "更平",
    "livelier": "更有起伏",
    "softer": "更轻",
    "louder": "更响",
    "fewer pauses": "停顿更少",
    "more pauses": "停顿更多",
    "darker": "更暗",
    "brighter": "更亮",
    "calmer": "更平静",
    "more excited": "更激动",
    "perhaps {}": "也许{0}",
    "the same": "相同",
    "the same, within the error": "相同，差别在误差之内",
    # the coach
    "slow down": "说慢一点",
    "speed up": "说快一点",
    "louder, please": "大声一点",
    "vary your pitch": "语调多些起伏",
    "keep talking": "请继续说",
    "take a breath": "停一下，换口气",
}
WARNINGS: Mapping[str, str] = {
    "only {:.1f} s of speech: under {:.1f} s nothing holds": (
        "只说了 {0:.1f} 秒：不到 {1:.1f} 秒时什么都不可靠"
    ),
    "no pitch: the voice is whispered, so nothing is said about pitch and melody": (
        "没有音高：声音是耳语，所以不谈音高和语调"
    ),
    "clipped: {:.1f} % of the samples are at full scale, so level and timbre are wrong; record it "
    "softer": "削波：{0:.1f}% 的采样达到满刻度，音量和音色不准；请把录音音量调低",
    "noisy: speech is only {:.0f} dB above the noise, {:.0f} dB are needed; go nearer to the "
    "microphone": "噪声大：语音只比噪声高 {0:.0f} 分贝，需要 {1:.0f} 分贝；请离麦克风近一些",
    "only {:.1f} s long: a description of such short speech is a guess, 3 s are enough": (
        "只有 {0:.1f} 秒：这么短的话只能猜测，说 3 秒就够了"
    ),
    "{} gave no verdict ({}): {} block that the gate wanted verified went unverified": (
        "{0}没有给出判定（{1}）：需要核对的 {2} 段未经核对"
    ),
    "{} gave no verdict ({}): {} blocks that the gate wanted verified went unverified": (
        "{0}没有给出判定（{1}）：需要核对的 {2} 段未经核对"
    ),
    "{} gave no verdict ({}): {} block went unverified": "{0}没有给出判定（{1}）：{2} 段未经核对",
    "{} gave no verdict ({}): {} blocks went unverified": "{0}没有给出判定（{1}）：{2} 段未经核对",
    # errors of a turn or a session
    "no verdict of {} within {} s ({})": "{1} 秒内没有{0}的判定（{2}）",
    "the committed text stands": "已给出的文字保留",
    "take --mode gated or --degrade to go on without it": (
        "要在没有它时继续，请用 --mode gated 或 --degrade"
    ),
    "{} is not there ({})": "{0}不在线（{1}）",
    "the verifier at ": "核对模型 ",
    "Connection refused": "连接被拒绝",
    "not connected yet": "尚未连接",
    "it is slow": "太慢",
    "the link was cut": "连接中断",
    "the session goes on in another connection": "会话已在另一个连接中继续",
    "the session is over": "会话已结束",
}


def told(language: str, english: str, *values: object) -> str:
    """A text in the language of a sentence, with its values."""
    form = english
    if language == "zh":
        form = CHINESE.get(english) or WARNINGS.get(english, english)
    return form.format(*values) if values else form


def comma(language: str) -> str:
    return "，" if language == "zh" else ", "
