// The page's texts in English and Chinese, by name, and what the browser remembers.
//
// An element keeps the name of its text, so that it follows a change of the language: data-word for the text itself,
// data-label for the aria-label.

// Storage of the browser. If it is blocked, nothing is remembered and nothing breaks.
function storeOf(storage) {
  const tried = (use) => {
    try {
      return use(storage());
    } catch {
      return null;
    }
  };
  return {
    get: (key) => tried((kept) => kept.getItem(key)),
    set: (key, text) => tried((kept) => kept.setItem(key, text)),
    drop: (key) => tried((kept) => kept.removeItem(key)),
  };
}

export const browser = storeOf(() => localStorage);
export const tab = storeOf(() => sessionStorage);

const KEY = "streamer.language"; // in the browser's storage: remembered

// name: [in English, in Chinese]
const WORDS = {
  language: ["en", "zh-Hans"],
  title: ["streamer: how do you speak?", "streamer：您怎么说话？"],
  claim: ["Speak. The moment you stop, one sentence says how you spoke.", "请说话。您一停下，就有一句话说明您是怎么说的。"],
  "choose-language": ["Language", "语言"],
  key: ["API key", "API 密钥"],
  settings: ["Settings", "设置"],
  live: ["Live updates while I speak", "说话时实时更新"],
  coaching: ["Coach, for the microphone", "教练（麦克风）"],
  sample: ["Try a sample", "试听样例"],
  speak: ["Speak", "说话"],
  stop: ["Stop", "停止"],
  cancel: ["Cancel", "取消"],
  dismiss: ["Close this message", "关闭此消息"],
  loudness: ["Loudness of the microphone", "麦克风音量"],
  choose: ["Choose recordings", "选择录音"],
  drop: ["or drop them on the page.", "或拖放到页面上。"],
  sent: ["Recording sent", "录音发送进度"],
  now: ["How you spoke", "您的说话方式"],
  empty: ["Your sentence appears here.", "句子将显示在这里。"],
  "so-far": [(seconds) => `So far, after ${seconds} s`, (seconds) => `目前，${seconds} 秒后`],
  earlier: ["Earlier", "之前的句子"],
  ready: ["Press Speak, say something, pause.", "按“说话”，说点什么，然后停一下。"],
  listening: ["Listening. Speak, then pause.", "正在听。请说话，然后停一下。"],
  hearing: ["Hearing you …", "听到您在说话……"],
  describing: ["Describing …", "正在描述……"],
  again: ["Describing …, then listening again.", "正在描述……随后继续聆听。"],
  "describing-file": [(name) => `Describing ${name} …`, (name) => `正在描述 ${name}……`],
  reading: [(name) => `Reading ${name} …`, (name) => `正在读取 ${name}……`],
  sending: [(name) => `Sending ${name} …`, (name) => `正在发送 ${name}……`],
  done: ["Done.", "完成。"],
  "no-speech": [(seconds) => `No speech in ${seconds} s of sound.`, (seconds) => `${seconds} 秒的声音里没有人说话。`],
  broke: ["The connection broke; trying again. Is the server running?", "连接断开，正在重试。服务器在运行吗？"],
  first: [(seconds) => `first words after ${seconds} s`, (seconds) => `${seconds} 秒后出现第一个词`],
  checked: [(percent) => `${percent} % checked by the larger model`, (percent) => `${percent}% 经大模型核对`],
  heard: [(seconds, origin) => `${seconds} s of ${origin}`, (seconds, origin) => `${origin}，${seconds} 秒`],
  spoken: [(seconds) => `${seconds} s of microphone`, (seconds) => `麦克风，${seconds} 秒`],
  part: [(from, to) => `from ${from} to ${to}`, (from, to) => `从 ${from} 到 ${to}`],
  failed: [(origin) => `${origin}: failed`, (origin) => `${origin}：失败`],
  "spoken-failed": ["microphone: failed", "麦克风：失败"],
  silent: [(origin) => `${origin}: no speech`, (origin) => `${origin}：没有人说话`],
  cancelled: [(origin) => `${origin}: cancelled`, (origin) => `${origin}：已取消`],
  "left-out": [(num, most) => `${num} recordings left out: at most ${most} wait; give them again.`, (num, most) => `有 ${num} 个录音未加入：最多等待 ${most} 个，请稍后再选。`],
  "of-file": [(name, problem) => `${name}: ${problem}`, (name, problem) => `${name}：${problem}`],
  told: [(message) => message, (message) => message],
  lost: ["The connection was broken for too long: some of what you said is lost.", "连接断开太久，您说的一部分已丢失。"],
  anew: ["The server started anew: a sentence may miss its beginning.", "服务器已重新启动，句子可能缺少开头。"],
  late: [(seconds) => `No answer within ${seconds} s; the server may be overloaded.`, (seconds) => `${seconds} 秒内没有回答，服务器可能过载。`],
  away: [
    (seconds) => `The connection broke and did not come back within ${seconds} s: what you said last is lost.`,
    (seconds) => `连接已断开，${seconds} 秒内未恢复：您最后说的话已丢失。`,
  ],
  closed: [(reason) => `The server closed the session${reason ? `: ${reason}` : ""}.`, (reason) => `服务器关闭了会话${reason ? `：${reason}` : ""}。`],
  unreachable: ["The server cannot be reached. Is `streamer serve` running?", "无法连接服务器。`streamer serve` 在运行吗？"],
  incomplete: ["The page could not be loaded whole; load it again.", "页面没有完整加载，请重新加载。"],
  "wrong-key": ["That API key is not the server's. Type the right one into the field above.", "API 密钥不对，请在上方输入正确的密钥。"],
  "no-key": ["The server wants an API key. Type it into the field above.", "服务器需要 API 密钥，请在上方输入。"],
  "odd-key": ["This key holds characters that a browser cannot send; letters, digits and -._~ work.", "密钥含有浏览器无法发送的字符，可用字母、数字和 -._~。"],
  origin: ["The server does not take this page's origin (--allow-origin).", "服务器不接受此页面的来源（--allow-origin）。"],
  full: [(seconds) => `The server is full; try again ${seconds ? `in ${seconds} s` : "later"}.`, (seconds) => `服务器已满，请${seconds ? ` ${seconds} 秒后` : "稍后"}再试。`],
  refused: [(status) => `The server refuses the connection (${status}).`, (status) => `服务器拒绝连接（${status}）。`],
  insecure: ["Browsers give the microphone to https pages and to localhost only. Recordings work here.", "浏览器只允许 https 页面和 localhost 使用麦克风。这里可以用录音。"],
  "not-allowed": [
    "The microphone is not allowed. Allow it for this page in the browser's settings, then press Speak.",
    "麦克风未获许可。请在浏览器设置中允许此页面使用，然后按“说话”。",
  ],
  "no-microphone": ["There is no microphone. Plug one in, or choose a recording.", "没有麦克风。请接上麦克风，或选择录音。"],
  taken: ["The microphone is taken by another program, or the system withholds it.", "麦克风被其他程序占用，或被系统禁止。"],
  gone: ["The microphone is gone. Plug it in and press Speak.", "麦克风已断开。请接好后按“说话”。"],
  "low-rate": [(rate) => `The microphone's ${rate} Hz are too few; 8000 are needed.`, (rate) => `麦克风的采样率 ${rate} Hz 太低，需要 8000 Hz。`],
  "no-opening": [(reason) => `The microphone cannot be opened (${reason}).`, (reason) => `无法打开麦克风（${reason}）。`],
  large: ["larger than 200 MB; cut it first.", "大于 200 MB，请先剪短。"],
  "no-sound": ["no sound that this browser can decode.", "此浏览器无法解码其中的声音。"],
  "of-sentence": ["What was heard", "听到的特征"],
  "of-now": ["The last seconds", "最近几秒"],
  "a-rate": ["Rate", "语速"],
  "a-pitch": ["Pitch", "音高"],
  "a-variation": ["Variation", "语调"],
  "a-loudness": ["Loudness", "音量"],
  "a-pauses": ["Pauses", "停顿"],
  "a-timbre": ["Timbre", "音色"],
  "a-arousal": ["Arousal", "情绪"],
  coach: ["Coach", "教练"],
  curve: ["Pitch and loudness of the last 30 s", "最近 30 秒的音高和音量"],
  learning: [
    (seconds, wanted) => `learning how you usually speak: ${seconds} of ${wanted} s of speech`,
    (seconds, wanted) => `正在了解您平时的说话方式：${seconds} / ${wanted} 秒语音`,
  ],
  learnt: [(seconds) => `beside your usual way, of ${seconds} s`, (seconds) => `与您平时（${seconds} 秒语音）相比`],
  "u-rate": ["syllables/s", "音节/秒"],
  "u-hz": ["Hz", "赫兹"],
  "u-semitones": ["semitones", "半音"],
  "u-dbfs": ["dBFS", "分贝"],
  "u-db": ["dB", "分贝"],
  "u-percent": ["%", "%"],
  usual: ["usual", "平时"],
  usually: [(value) => `usually ${value}`, (value) => `平时 ${value}`],
  "nudge-too_fast": ["Slow down", "说慢一点"],
  "nudge-too_slow": ["Speed up", "说快一点"],
  "nudge-too_soft": ["Louder, please", "大声一点"],
  "nudge-flat": ["Vary your pitch", "语调多些起伏"],
  "nudge-long_silence": ["Keep talking", "请继续说"],
  "nudge-no_pause": ["Take a breath", "停一下，换口气"],
  "nudge-filled_pauses": ["Pause instead of “um”", "停顿，不说“嗯”"],
  "nudge-measure": [(value, unit, usual) => `${value} ${unit}, usually ${usual}`, (value, unit, usual) => `${value} ${unit}，平时 ${usual}`],
  "nudge-silence_s": [(seconds) => `silent for ${seconds} s`, (seconds) => `已静默 ${seconds} 秒`],
  "nudge-speech_without_pause_s": [(seconds) => `${seconds} s without a pause`, (seconds) => `已连续说 ${seconds} 秒`],
  "nudge-filled_pauses_per_min": [(num) => `“um” ${num} times in a minute`, (num) => `一分钟内说了 ${num} 次“嗯”`],
  "save-report": ["Save a report", "保存报告"],
  "keep-usual": ["Keep this as my usual way", "记住这是我平时的方式"],
  "forget-usual": ["Forget my usual way", "忘记我平时的方式"],
  "usual-older": ["Your usual way was kept by an older form of this page; it is learnt anew.", "旧版页面保存的“平时的方式”不能再用，将重新了解。"],
  "report-file": ["how-you-spoke", "说话方式"],
  playback: ["The recording", "录音"],
  "report-title": ["How you spoke", "您的说话方式"],
  "report-pace": [(times) => `At the end you spoke at ${times} times your usual pace.`, (times) => `结束时，您的语速是平时的 ${times} 倍。`],
  "report-pace-began": [(times) => `At the end you spoke at ${times} times the pace of the beginning.`, (times) => `结束时，您的语速是开头的 ${times} 倍。`],
  "report-steady": ["Your pace was the same from beginning to end.", "您的语速从头到尾保持不变。"],
  "report-length": [(time) => `${time} of sound`, (time) => `录音长度 ${time}`],
  "report-measures": ["Measures", "测量值"],
  "report-measure": ["measure", "项目"],
  "report-usual": ["usual", "平时"],
  "report-median": ["median", "中位数"],
  "report-range": ["5 % … 95 %", "5% … 95%"],
  "report-unit": ["unit", "单位"],
  "report-windows": ["Of windows of 7 s, one each second.", "每秒一个 7 秒的窗口。"],
  "report-curves": ["Curves", "曲线"],
  "report-nudges": ["Nudges", "提示"],
  "report-no-nudge": ["None.", "没有。"],
  "report-sentences": ["Sentences", "句子"],
  "report-no-sentence": ["None.", "没有。"],
  "report-time": ["time", "时间"],
  "report-word": ["word", "提示"],
  "report-why": ["why", "原因"],
  "report-sentence": ["sentence", "句子"],
  "report-how": ["How it was computed", "计算方法"],
  "report-how-1": [
    "Rate: syllables that a small network counts in the sound, per second of speech without pauses. Pitch: the median of F0, which is found between 60 and 500 Hz by autocorrelation, as Praat does; its movement is the standard deviation in semitones. Level: the mean power of speech, against full scale. Pauses: their share of the time, from 0.18 s on.",
    "语速：一个小型神经网络在声音中数出的音节数，除以不含停顿的说话时间。音高：基频的中位数，用自相关法（与 Praat 相同）在 60 到 500 赫兹之间求得；起伏是其以半音计的标准差。音量：语音的平均功率，相对满刻度。停顿：不短于 0.18 秒的停顿所占时间。",
  ],
  "report-how-2": [
    "The sentences are a language model's; the numbers are measured from the sound, and where a number can be relied on, its word is not far from it. The rate of a person is off by about 0.4 syllables/s; against their own usual rate most of that cancels out.",
    "句子出自语言模型，数字是从声音中测得的；只要数字可靠，句中的用词就不会远离它。语速的误差约为每秒 0.4 个音节；与本人平时相比，大部分误差会抵消。",
  ],
  "report-how-3": [
    "Usual is what was learnt from the speaker's own speech. The dashed lines are it, and the red lines are nudges.",
    "“平时”是从说话人自己的语音中了解到的。虚线表示平时，红线表示提示。",
  ],
  "report-how-4": ["There was too little speech to learn what is usual. The red lines are nudges.", "语音太少，无法了解平时的方式。红线表示提示。"],
};

const LANGUAGES = ["en", "zh"];
const ATTRIBUTES = { word: "textContent", label: "ariaLabel" };
let spoken = 0; // the place of the page's language

// The text of a word. Its arguments may be words again: ["name", ...].
export function say(name, ...about) {
  const word = WORDS[name][spoken];
  return typeof word === "string" ? word : word(...about.map((one) => (Array.isArray(one) ? say(...one) : one)));
}

// Another word, in English and Chinese.
export function learn(name, english, chinese) {
  WORDS[name] = [english, chinese];
}

// Give `element` a word, or none (null).
export function put(element, word) {
  if (word === null) {
    delete element.dataset.word;
    element.textContent = "";
  } else {
    element.dataset.word = JSON.stringify(word);
    element.textContent = say(...word);
  }
}

// "en" or "zh": what was chosen last, else what the browser speaks.
export function wantedLanguage() {
  const chosen = browser.get(KEY);
  if (LANGUAGES.includes(chosen)) return chosen;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

export function speakLanguage(language) {
  spoken = LANGUAGES.indexOf(language);
  browser.set(KEY, language);
  document.documentElement.lang = say("language");
  document.title = say("title");
  for (const [data, property] of Object.entries(ATTRIBUTES)) {
    for (const element of document.querySelectorAll(`[data-${data}]`)) {
      const word = element.dataset[data];
      element[property] = say(...(word.startsWith("[") ? JSON.parse(word) : [word]));
    }
  }
}
