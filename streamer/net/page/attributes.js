// A sentence read back into attributes, as streamer/core/attributes.py does. In: text, each level's phrases. Out: levels.

const NAMES = {
  rate: ["语速", "Rate"],
  pitch: ["音高", "Pitch"],
  variation: ["语调", "Variation"],
  loudness: ["音量", "Loudness"],
  pauses: ["停顿", "Pauses"],
  timbre: ["音色", "Timbre"],
  arousal: ["情绪", "Arousal"],
};

// Of the models that ship; another model's levels are shown by the name it gives them.
const LEVELS = {
  rate: { 很慢: "very slow", 偏慢: "slow", 适中: "medium", 偏快: "fast", 很快: "very fast" },
  pitch: { 低沉: "very low", 偏低: "low", 偏高: "high", 很高: "very high" },
  variation: { 平直: "flat", 自然: "natural", 丰富: "lively" },
  loudness: { 很轻: "very soft", 偏轻: "soft", 中等: "medium", 响亮: "loud" },
  pauses: { 连贯: "few", 适度: "some", 频繁: "many" },
  timbre: { 暗沉: "dark", 均衡: "balanced", 明亮: "bright" },
  arousal: { 平静: "calm", 平和: "relaxed", 激动: "excited" },
};

// attribute -> {chinese, english, levels: [{chinese, english, phrases}]}, in the order of the chart.
export function nameAttributes(found) {
  return Object.fromEntries(
    Object.entries(NAMES).map(([attribute, [chinese, english]]) => {
      const levels = (found[attribute] ?? []).map(({ name, phrases }) => {
        return { chinese: name, english: LEVELS[attribute][name] ?? "", phrases };
      });
      return [attribute, { chinese, english, levels }];
    }),
  );
}

// attribute -> level or null. Longest phrase first, then leftmost, without overlap: 不太快 is not read as 快.
export function parse(text, attributes) {
  const found = Object.fromEntries(Object.keys(attributes).map((attribute) => [attribute, null]));
  const taken = new Array(text.length).fill(false);
  for (const { phrase, attribute, level } of longestFirst(attributes)) {
    for (let at = text.indexOf(phrase); at >= 0; at = text.indexOf(phrase, at + 1)) {
      if (taken.slice(at, at + phrase.length).includes(true)) continue;
      taken.fill(true, at, at + phrase.length);
      found[attribute] ??= level;
    }
  }
  return found;
}

function longestFirst(attributes) {
  const all = Object.entries(attributes).flatMap(([attribute, { levels }]) =>
    levels.flatMap(({ phrases }, level) => phrases.map((phrase) => ({ phrase, attribute, level }))),
  );
  return all.sort((a, b) => b.phrase.length - a.phrase.length);
}
