// What the page says, in English and Chinese. In: a word's name and what it is about. Out: text, in the language in force.
//
// An element that says a word keeps its name, so that a change of the language changes it too: data-word for its text,
// data-label for its aria-label, data-hint for its placeholder.

const KEY = "streamer.language"; // in localStorage: remembered

const ENGLISH = {
  language: "en",
  title: "streamer: how do you speak?",
  claim: "Speak. The moment you stop, one sentence says how you spoke.",
  "choose-language": "Language",
  live: "Live updates",
  key: "API key",
  "key-hint": "if asked for",
  speak: "Speak",
  stop: "Stop",
  cancel: "Cancel",
  dismiss: "Close this message",
  loudness: "Loudness of the microphone",
  choose: "Choose recordings",
  drop: "or drop them anywhere.",
  sent: "Recording sent",
  now: "How you spoke",
  before: " before",
  legend: "lighter: not checked by the larger model",
  empty: "The sentence comes here.",
  attributes: "Seven attributes",
  "so-far-suffix": ", so far",
  "so-far": (seconds) => `So far, after ${seconds} s`,
  earlier: "Earlier",
  ready: "Press Speak, say something, pause.",
  listening: "Listening. Speak, then pause.",
  hearing: "Hearing you …",
  describing: "Describing …",
  "describing-file": (name) => `Describing ${name} …`,
  reading: (name) => `Reading ${name} …`,
  sending: (name) => `Sending ${name} …`,
  done: "Done.",
  "no-speech": (seconds) => `No speech in ${seconds} s of sound.`,
  broke: "The connection broke; trying again …",
  level: (level, highest) => `, level ${level} of 0 to ${highest}`,
  first: (seconds) => `first words after ${seconds} s`,
  whole: (seconds) => `whole after ${seconds} s`,
  checked: (percent) => `${percent} % checked by the larger model`,
  heard: (seconds, origin) => `${seconds} s of ${origin}`,
  spoken: (seconds) => `${seconds} s of microphone`,
  part: (from, to) => `from ${from} to ${to}`,
  failed: (origin) => `${origin}: failed`,
  "spoken-failed": "microphone: failed",
  silent: (origin) => `${origin}: no speech`,
  cancelled: (origin) => `${origin}: cancelled`,
  "left-out": (num, most) => `${num} recordings left out: at most ${most} wait; give them again.`,
  "of-file": (name, problem) => `${name}: ${problem}`,
  told: (message) => message,
  lost: "The connection was broken for too long: some of what you said is lost.",
  anew: "The server started anew: a sentence may miss its beginning.",
  late: (seconds) => `No answer within ${seconds} s; the server may be overloaded.`,
  closed: (reason) => `The server closed the session${reason ? `: ${reason}` : ""}.`,
  unreachable: "The server cannot be reached. Is `streamer serve` running?",
  incomplete: "The page could not be loaded whole; load it again.",
  "wrong-key": "That API key is not the server's. Type the right one into the field above.",
  "no-key": "The server wants an API key. Type it into the field above.",
  "odd-key": "This key holds characters that a browser cannot send; letters, digits and -._~ work.",
  origin: "The server does not take this page's origin (--allow-origin).",
  full: (seconds) => `The server is full; try again ${seconds ? `in ${seconds} s` : "later"}.`,
  refused: (status) => `The server refuses the connection (${status}).`,
  insecure: "Browsers give the microphone to https pages and to localhost only. Recordings work here.",
  "not-allowed": "The microphone is not allowed. Allow it for this page in the browser's settings, then press Speak.",
  "no-microphone": "There is no microphone. Plug one in, or choose a recording.",
  taken: "The microphone is taken by another program, or the system withholds it.",
  gone: "The microphone is gone. Plug it in and press Speak.",
  "low-rate": (rate) => `The microphone's ${rate} Hz are too few; 8000 are needed.`,
  "no-opening": (reason) => `The microphone cannot be opened (${reason}).`,
  large: "larger than 200 MB; cut it first.",
  "no-sound": "no sound that this browser can decode.",
};

const CHINESE = {
  language: "zh-Hans",
  title: "streamer：您怎么说话？",
  claim: "请说话。您一停下，就有一句话说明您是怎么说的。",
  "choose-language": "语言",
  live: "实时更新",
  key: "API 密钥",
  "key-hint": "需要时填写",
  speak: "说话",
  stop: "停止",
  cancel: "取消",
  dismiss: "关闭此消息",
  loudness: "麦克风音量",
  choose: "选择录音",
  drop: "或拖放到页面任意位置。",
  sent: "录音发送进度",
  now: "您的说话方式",
  before: "（上一段）",
  legend: "浅色：未经大模型核对",
  empty: "句子将显示在这里。",
  attributes: "七项特征",
  "so-far-suffix": "（目前）",
  "so-far": (seconds) => `目前，${seconds} 秒后`,
  earlier: "之前的句子",
  ready: "按“说话”，说点什么，然后停一下。",
  listening: "正在听。请说话，然后停一下。",
  hearing: "听到您在说话……",
  describing: "正在描述……",
  "describing-file": (name) => `正在描述 ${name}……`,
  reading: (name) => `正在读取 ${name}……`,
  sending: (name) => `正在发送 ${name}……`,
  done: "完成。",
  "no-speech": (seconds) => `${seconds} 秒的声音里没有人说话。`,
  broke: "连接断开，正在重试……",
  level: (level, highest) => `，级别 ${level}（0 到 ${highest}）`,
  first: (seconds) => `${seconds} 秒后出现第一个词`,
  whole: (seconds) => `${seconds} 秒后完整`,
  checked: (percent) => `${percent}% 经大模型核对`,
  heard: (seconds, origin) => `${origin}，${seconds} 秒`,
  spoken: (seconds) => `麦克风，${seconds} 秒`,
  part: (from, to) => `从 ${from} 到 ${to}`,
  failed: (origin) => `${origin}：失败`,
  "spoken-failed": "麦克风：失败",
  silent: (origin) => `${origin}：没有人说话`,
  cancelled: (origin) => `${origin}：已取消`,
  "left-out": (num, most) => `有 ${num} 个录音未加入：最多等待 ${most} 个，请稍后再选。`,
  "of-file": (name, problem) => `${name}：${problem}`,
  told: (message) => message,
  lost: "连接断开太久，您说的一部分已丢失。",
  anew: "服务器已重新启动，句子可能缺少开头。",
  late: (seconds) => `${seconds} 秒内没有回答，服务器可能过载。`,
  closed: (reason) => `服务器关闭了会话${reason ? `：${reason}` : ""}。`,
  unreachable: "无法连接服务器。`streamer serve` 在运行吗？",
  incomplete: "页面没有完整加载，请重新加载。",
  "wrong-key": "API 密钥不对，请在上方输入正确的密钥。",
  "no-key": "服务器需要 API 密钥，请在上方输入。",
  "odd-key": "密钥含有浏览器无法发送的字符，可用字母、数字和 -._~。",
  origin: "服务器不接受此页面的来源（--allow-origin）。",
  full: (seconds) => `服务器已满，请${seconds ? ` ${seconds} 秒后` : "稍后"}再试。`,
  refused: (status) => `服务器拒绝连接（${status}）。`,
  insecure: "浏览器只允许 https 页面和 localhost 使用麦克风。这里可以用录音。",
  "not-allowed": "麦克风未获许可。请在浏览器设置中允许此页面使用，然后按“说话”。",
  "no-microphone": "没有麦克风。请接上麦克风，或选择录音。",
  taken: "麦克风被其他程序占用，或被系统禁止。",
  gone: "麦克风已断开。请接好后按“说话”。",
  "low-rate": (rate) => `麦克风的采样率 ${rate} Hz 太低，需要 8000 Hz。`,
  "no-opening": (reason) => `无法打开麦克风（${reason}）。`,
  large: "大于 200 MB，请先剪短。",
  "no-sound": "此浏览器无法解码其中的声音。",
};

export const LANGUAGES = { en: ENGLISH, zh: CHINESE };
const ATTRIBUTES = { word: "textContent", label: "ariaLabel", hint: "placeholder" };
let words = ENGLISH;

// The text of a word. What it is about may be a word again: ["name", ...].
export function say(name, ...about) {
  const word = words[name];
  return typeof word === "string" ? word : word(...about.map((one) => (Array.isArray(one) ? say(...one) : one)));
}

// Let `element` say a word, or nothing (null).
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
  const chosen = localStorage.getItem(KEY);
  if (chosen in LANGUAGES) return chosen;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

export function speakLanguage(language) {
  words = LANGUAGES[language];
  localStorage.setItem(KEY, language);
  document.documentElement.lang = words.language;
  document.title = words.title;
  for (const [data, property] of Object.entries(ATTRIBUTES)) {
    for (const element of document.querySelectorAll(`[data-${data}]`)) {
      const word = element.dataset[data];
      element[property] = say(...(word.startsWith("[") ? JSON.parse(word) : [word]));
    }
  }
}
