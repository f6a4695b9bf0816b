// What is on the screen besides the chart. In: texts and numbers. Out: the page's elements.

const MAX_HISTORY = 50;
const METER_EVERY_MS = 50;

const at = (id) => document.getElementById(id);

export function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export class View {
  #meteredAt = 0;
  #finished = null; // the sentence on the screen, once it is whole: [text, facts]

  status(text) {
    at("status").textContent = text;
  }

  problem(text) {
    at("problem").textContent = text;
  }

  // Pressed while the microphone is on.
  microphone(isOn) {
    at("mic").setAttribute("aria-pressed", String(isOn));
    at("mic-label").textContent = isOn ? "Stop" : "Speak";
    if (!isOn) this.level(0, true);
  }

  level(share, isForced = false) {
    const now = performance.now();
    if (!isForced && now - this.#meteredAt < METER_EVERY_MS) return;
    this.#meteredAt = now;
    at("talk").style.setProperty("--level", share.toFixed(3));
    at("level").setAttribute("aria-valuenow", String(Math.round(100 * share)));
  }

  // Share of a recording that was sent; null: there is none.
  progress(share) {
    at("progress").hidden = share === null;
    at("progress").value = share ?? 0;
  }

  soFar(text, heardS) {
    at("so-far").hidden = false;
    at("so-far-title").textContent = `So far, after ${heardS.toFixed(0)} s`;
    at("so-far-text").textContent = text;
  }

  // A sentence begins: the last one goes to the history. Screen readers wait until it is whole.
  begin() {
    if (this.#finished) this.#remember(...this.#finished);
    this.#finished = null;
    at("so-far").hidden = true;
    at("sentence").setAttribute("aria-busy", "true");
    at("sentence").replaceChildren();
    at("facts").replaceChildren();
  }

  append(text, isVerified) {
    at("sentence").append(element("span", { className: isVerified ? "verified" : "unverified" }, [text]));
  }

  end(text, facts) {
    at("sentence").setAttribute("aria-busy", "false");
    at("facts").replaceChildren(...spans(facts));
    this.#finished = [text, facts];
  }

  #remember(text, facts) {
    const sentence = element("p", { lang: "zh-Hans" }, [text]);
    at("history").prepend(element("li", {}, [sentence, element("p", { className: "facts" }, spans(facts))]));
    while (at("history").children.length > MAX_HISTORY) at("history").lastChild.remove();
  }
}

function spans(texts) {
  return texts.map((text) => element("span", {}, [text]));
}
