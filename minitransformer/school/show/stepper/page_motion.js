// Motion: how the numbers of a line come together. A row meets a column and becomes one number, the scores of a row
// become its weights, the terms of a gradient arrive from every query that looked. Copies of the numbers move; the page
// below them already shows the step, so that nothing waits for the motion to end.

const MOST = 64; // numbers that move at once: more only confuse
const BEAT = 260; // milliseconds from one term of a sum to the next, while there are few
const WHOLE = 1600; // milliseconds that all terms together may take to set off
const FLIGHT = 700; // milliseconds that a number is on its way

class Motion {
  constructor(recording) {
    this.recording = recording;
    this.on = false;
    this.running = [];
    this.frame = 0;
    this.layer = make("div", { class: "motion", "aria-hidden": "true" });
    document.body.append(this.layer);
  }

  turn(on) {
    this.on = on;
    this.stop();
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.running.splice(0).forEach((animation) => animation.cancel());
    this.layer.replaceChildren();
  }

  // A step: its first number comes from its terms, or each number from the one at its place in what the line read.
  step(s) {
    this.later(() => {
      const { bound } = this.recording.steps[s];
      if (this.recording.line(s).entry) return; // it binds the arguments
      for (const b of bound.keys()) if (this.arrive([s, b], 0) || this.become([s, b])) return;
    });
  }

  // One number that was asked for.
  cell(place, flat) {
    this.later(() => this.arrive(place, flat));
  }

  // Once the page is drawn; of several steps in one frame only the last one moves.
  later(play) {
    this.stop();
    if (!this.on) return;
    this.frame = requestAnimationFrame(() => {
      const { left, top, right, bottom } = panel();
      this.layer.style.clipPath = `inset(${top}px ${innerWidth - right}px ${innerHeight - bottom}px ${left}px)`;
      play();
    });
  }

  // The terms of a number, one after the other: the factors of a term meet, then fly to the number.
  arrive(place, flat) {
    const target = this.find(place, flat, "#result");
    const origin = originOf(this.recording, place, flat);
    if (!target || origin.term === null || origin.cells.length > MOST) return false;
    const terms = termsOf(origin.term)
      .map((used) => used.map((i) => this.find(...origin.cells[i], ".numbers")).filter(Boolean))
      .filter((found) => found.length);
    if (terms.length === 0) return false;
    const beat = Math.min(BEAT, WHOLE / terms.length);
    terms.forEach((cells, i) => {
      const meeting = middleOf(cells.map(centre));
      for (const cell of cells) this.fly(cell, target, i * beat, cells.length > 1 ? meeting : null);
    });
    this.appear(target, (terms.length - 1) * beat + FLIGHT);
    return true;
  }

  // Every number flies to its place in an array of the same shape, row after row: scores become weights.
  become([s, b]) {
    const { shape, data } = this.recording.value(s, b);
    if (!data || shape.length === 0 || data.length > MOST) return false;
    const alike = operandsOf(this.recording, s).find((from) => {
      const array = this.recording.value(...from);
      return array.data && String(array.shape) === String(shape);
    });
    if (!alike) return false;
    const beat = Math.min(BEAT, WHOLE / (data.length / shape.at(-1)));
    for (const flat of data.keys()) {
      const [cell, target] = [this.find(alike, flat, "#operands"), this.find([s, b], flat, "#result")];
      if (!cell || !target) continue;
      const delay = Math.floor(flat / shape.at(-1)) * beat;
      this.fly(cell, target, delay, null);
      this.appear(target, delay + FLIGHT);
    }
    return true;
  }

  // The element of a number, or null where none is in sight.
  find(place, flat, within) {
    const found = document.querySelector(`${within} [data-place="${place.join(",")}"] .cell[data-flat="${flat}"]`);
    const box = found?.getBoundingClientRect();
    const { top, bottom } = panel();
    return box?.width && box.bottom > top && box.top < bottom ? found : null;
  }

  // A copy of a cell goes to the target, by way of the meeting point if there is one.
  fly(cell, target, delay, meeting) {
    const [from, to] = [centre(cell), centre(target)];
    const { left, top, width, height } = cell.getBoundingClientRect();
    const style = `left: ${left}px; top: ${top}px; width: ${width}px; height: ${height}px`;
    const copy = make("span", { class: "flying", style }, cell.textContent);
    this.layer.append(copy);
    const by = ([x, y], scale) => `translate(${x - from[0]}px, ${y - from[1]}px) scale(${scale})`;
    const frames = [
      { transform: "none", opacity: 1 },
      ...(meeting ? [{ transform: by(meeting, 1.1), opacity: 1, offset: 0.5 }] : []),
      { transform: by(to, 1), opacity: 0.9, offset: 0.95 },
      { transform: by(to, 0.8), opacity: 0 },
    ];
    const timing = { duration: FLIGHT, delay, easing: "ease-in-out", fill: "both" };
    this.run(copy, frames, timing).finished.then(() => copy.remove(), () => {});
    const lit = { outline: "2px solid var(--source)", borderRadius: "0.35rem" };
    this.run(cell, [lit, lit], { duration: FLIGHT / 2, delay });
  }

  appear(target, delay) {
    const frames = [{ opacity: 0.15 }, { opacity: 0.15, offset: 0.9 }, { opacity: 1 }];
    this.run(target, frames, { duration: delay + 100 });
  }

  run(element, frames, timing) {
    const animation = element.animate(frames, timing);
    this.running.push(animation);
    animation.finished.catch(() => {}); // cancelled, by the next step
    return animation;
  }
}

// What of the numbers' side of the page is in sight, above the controls.
function panel() {
  const { left, top, right, bottom } = byId("now").getBoundingClientRect();
  const controls = document.querySelector(".transport").getBoundingClientRect();
  return { left, top, right, bottom: Math.min(bottom, controls.top) };
}

function centre(element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return [left + width / 2, top + height / 2];
}

const middleOf = (points) => [0, 1].map((axis) => points.reduce((all, point) => all + point[axis], 0) / points.length);

// The numbers in each term of the outermost sum, as indices; then those outside of it, such as a factor.
function termsOf(term) {
  const used = (part) => (Array.isArray(part) ? part.slice(1).flatMap(used) : typeof part === "number" ? [part] : []);
  const sum = outermostSum(term);
  const terms = sum ? sum.slice(1).map(used) : [used(term)];
  const inside = new Set(terms.flat());
  return [...terms, used(term).filter((i) => !inside.has(i))].filter((found) => found.length);
}

function outermostSum(term) {
  if (!Array.isArray(term)) return null;
  if (term[0] === "+") return term;
  return term.slice(1).reduce((found, part) => found ?? outermostSum(part), null);
}
