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

// found: the server's attributes.json. attribute -> {chinese, english, levels: [{chinese, english, phrases}]}, in the order of the chart.
export function nameAttributes(found) {
  return Object.fromEntries(
    Object.entries(NAMES).map(([attribute, [chinese, english]]) => {
      const levels = (found[attribute] ?? []).map(({ name, english, phrases }) => ({ chinese: name, english, phrases }));
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
