// Pitch and level of the last half minute, drawn. In: points of 50 ms, the baseline. Out: a canvas.

const SHOWN_S = 30;
const POINT_S = 0.05;
const MAX_POINTS = SHOWN_S / POINT_S;
const CALM_EVERY_S = 2; // where somebody wants less motion
export const PITCH_HZ = [60, 500];
export const LEVEL_DBFS = [-60, 0];

// 0 to 1 between the bounds; pitch by octaves.
export function shareOf(value, [low, high], isLog = false) {
  const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.max(0, Math.min(1, share));
}

export class Curve {
  #canvas;
  #points = []; // {t, hz or null, level}, of SHOWN_S
  #nudges = []; // seconds
  #baseline = null;
  #drawnS = -Infinity;

  constructor(canvas) {
    this.#canvas = canvas;
    addEventListener("resize", () => this.#draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  clear() {
    this.#points = [];
    this.#nudges = [];
    this.#baseline = null;
    this.#drawnS = -Infinity;
    this.#draw();
  }

  usual(baseline) {
    this.#baseline = baseline;
  }

  nudge(seconds) {
    this.#nudges.push(seconds);
    if (this.#nudges.length > MAX_POINTS) this.#nudges.shift();
  }

  // Of one event: what is new.
  add({ t_s: t, curve_s: from, pitch_hz: pitches, level_dbfs: levels }) {
    pitches.forEach((hz, i) => this.#points.push({ t: from + i * POINT_S, hz, level: levels[i] }));
    this.#points.splice(0, this.#points.length - MAX_POINTS);
    const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_EVERY_S : 0;
    if (t - this.#drawnS < every) return;
    this.#drawnS = t;
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    const pen = this.#canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(this.#canvas);
    const colour = (name) => style.getPropertyValue(name);
    const end = Math.max(SHOWN_S, this.#points.at(-1)?.t ?? 0);
    const x = (t) => width * (1 - (end - t) / SHOWN_S);
    const pitchY = (hz) => 4 + (0.58 * height - 8) * (1 - shareOf(hz, PITCH_HZ, true));
    const levelY = (level) => height - 0.36 * height * shareOf(level, LEVEL_DBFS);

    pen.fillStyle = colour("--soft");
    pen.beginPath();
    pen.moveTo(x(this.#points[0]?.t ?? end), height);
    for (const { t, level } of this.#points) pen.lineTo(x(t), levelY(level));
    pen.lineTo(x(this.#points.at(-1)?.t ?? end), height);
    pen.fill();
    pen.strokeStyle = colour("--warn");
    for (const t of this.#nudges) line(pen, x(t), 0, x(t), height);
    if (this.#baseline) {
      pen.setLineDash([4, 5]);
      pen.strokeStyle = colour("--muted");
      const { pitch_median_hz: hz, level_dbfs: level } = this.#baseline;
      line(pen, 0, pitchY(hz), width, pitchY(hz));
      line(pen, 0, levelY(level), width, levelY(level));
      pen.setLineDash([]);
    }
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2.5;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    let isOn = false;
    for (const { t, hz } of this.#points) {
      if (hz !== null) isOn ? pen.lineTo(x(t), pitchY(hz)) : (pen.moveTo(x(t), pitchY(hz)), pen.lineTo(x(t) + 1, pitchY(hz)));
      isOn = hz !== null;
    }
    pen.stroke();
  }
}

function line(pen, fromX, fromY, toX, toY) {
  pen.beginPath();
  pen.moveTo(fromX, fromY);
  pen.lineTo(toX, toY);
  pen.stroke();
}
