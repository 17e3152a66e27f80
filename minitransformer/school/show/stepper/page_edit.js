// Edited inputs: every number again, from the terms that the page has for each line, and the finite differences.

// All numbers of a recording, as lists by the number of their binding.
class Evaluator {
  constructor(recording) {
    const { steps, places } = recording;
    const entry = steps.findIndex((_, s) => recording.backward(s));
    Object.assign(this, { recording, entry });
    this.recorded = places.map(([s, b]) => recording.recorded(s, b).data);
    this.origins = places.map(([s, b]) => (s === 0 || s === entry ? null : originIn(steps[s].bound[b])));
    this.read = new Set(); // by a line that computes; of a setting that is only handed on, another name does not count
    for (let n = places.length - 1; n >= 0; n--) {
      const computes = (this.recorded[n]?.length ?? 0) > 1 || this.origins[n]?.terms?.some((term) => Array.isArray(recording.data.terms[term]));
      if (computes || this.read.has(n)) readBy(this.origins[n]).forEach((other) => this.read.add(other));
    }
  }

  // given: lists by number, in place of those of `base`. bug: whose lines replace the right ones. Nothing is computed
  // that reads nothing changed. until: the last number that is wanted.
  run(given, bug, base = this.recorded, until = base.length - 1) {
    const values = base.slice();
    const changed = new Set(given.keys());
    given.forEach((numbers, n) => (values[n] = numbers));
    for (let n = Math.min(...given.keys(), bug ? 0 : Infinity); n <= until; n++) {
      const wrong = bug?.fromAt.get(String(this.recording.places[n]));
      const origin = wrong?.terms ? wrong : this.origins[n];
      if (given.has(n) || !origin || !(wrong || some(readBy(origin), changed))) continue;
      values[n] = origin.terms ? this.written(origin, values) : values[origin.same];
      changed.add(n);
    }
    return values;

    function some(read, set) {
      for (const n of read) if (set.has(n)) return true;
      return false;
    }
  }

  written({ terms, cells }, values) {
    return Float64Array.from(terms, (term, flat) => {
      const used = cells[flat];
      const numbers = [];
      for (let i = 0; i < used.length; i += 2) numbers.push(values[used[i]][used[i + 1]]);
      return evaluated(this.recording.data.terms[term], numbers);
    });
  }

  // Central differences of L = Σ upstream · output with respect to every number of binding n, or null where the output
  // is not known: dL/dx ≈ Σ upstream · (output(x + h) − output(x − h)) / 2h with h = 10⁻⁵ max(1, |x|), as in
  // verify.gradients.
  differences(n, bug, values) {
    const { output } = this.recording.data;
    if (output === null || n > output) return null;
    const upstream = values[this.recording.places.findIndex(([s]) => s === this.entry)];
    return values[n].map((x, flat) => {
      const h = 1e-5 * Math.max(1, Number.isFinite(x) ? Math.abs(x) : 1);
      const [ahead, behind] = [x + h, x - h].map((moved) => this.run(new Map([[n, values[n].with(flat, moved)]]), bug, values, output)[output]);
      return upstream.reduce((total, weight, i) => total + weight * (ahead[i] - behind[i]), 0) / (2 * h);
    });
  }
}

// Where the numbers of a binding come from: {terms, cells}, or {same}: another name's; null for what was given.
const originIn = (bound) => (bound.origin !== undefined ? { same: bound.origin } : bound.from?.terms ? bound.from : null);

// The numbers of the bindings that an origin reads.
function readBy(origin) {
  if (!origin) return new Set();
  origin.read ??= new Set(origin.terms ? origin.cells.flatMap((used) => used.filter((_, i) => i % 2 === 0)) : [origin.same]);
  return origin.read;
}

const near = (x, right) =>
  Object.is(x, right) || (Number.isFinite(right) && Math.abs(x - right) <= 1e-9 * (1 + Math.abs(right)));

// Which inputs can be edited: {places, fixed, run, makes, refused}. fixed: the indices of those that no line reads as
// they are, such as dropout. run(arrays, bug): what the page shows then: numbers, with a mistake also right, those
// without it, as lists by binding; wrong: by binding, the cells that the mistake changed; difference(n): finite
// differences. makes(bug): whether the terms give the numbers of a mistake. refused: a sentence that says why no input
// can be edited, else null.
function editable(recording) {
  const { title, followed } = recording.data;
  const refuse = (reason) => ({ places: [], fixed: [], run: null, makes: () => false, refused: `${reason} To change an input, record again in Python.` });
  if (followed.length === 0) return refuse(`This page cannot recompute ${title}: its sums do not tell which way its lines would go with other inputs.`);
  const evaluator = new Evaluator(recording);
  const isOpen = ([s, b]) => [0, evaluator.entry].includes(s) && recording.recorded(s, b).kind.startsWith("float");
  const places = recording.places.filter(isOpen);
  const numbersOf = places.map(recording.numberOf, recording);
  const given = (arrays) => new Map(arrays.map((numbers, i) => [numbersOf[i], numbers]).filter(([n, numbers]) => numbers.some((x, i) => x !== evaluator.recorded[n][i])));
  const all = evaluator.run(new Map(numbersOf.map((n) => [n, evaluator.recorded[n]])), null);
  const isRight = (numbers, n) => !numbers || numbers.every((x, i) => near(x, evaluator.recorded[n][i]));
  if (!all.every(isRight)) return refuse(`This page cannot recompute ${title}: it has a function that browsers lack.`);
  const run = (arrays, bug) => {
    const numbers = evaluator.run(given(arrays), bug);
    const right = bug ? evaluator.run(given(arrays), null) : null;
    const wrong = new Map();
    right?.forEach((expected, n) => {
      const cells = [...expected.keys()].filter((i) => !near(numbers[n][i], expected[i]));
      if (cells.length) wrong.set(n, new Set(cells));
    });
    const known = new Map();
    const difference = (n) => {
      if (!known.has(n)) known.set(n, evaluator.differences(n, bug, numbers));
      return known.get(n);
    };
    return { numbers, right, wrong, difference };
  };
  const made = new Map();
  const makes = (bug) => {
    if (!made.has(bug)) {
      recording.decodeBug(bug);
      const frozen = bug.from.some(([, , from]) => from.frozen); // as they were recorded with the mistake
      const numbers = evaluator.run(new Map(), bug);
      made.set(bug, !frozen && numbers.every((found, n) => {
        const change = bug.numberAt.get(String(recording.places[n]));
        const expected = evaluator.recorded[n].slice();
        [...(change?.cells ?? [])].forEach((cell, i) => (expected[cell] = change.numbers[i]));
        return found.every((x, i) => near(x, expected[i]));
      }));
    }
    return made.get(bug);
  };
  const isFollowed = ([s, b]) => followed.includes(recording.steps[s].bound[b].name);
  const isFixed = (place, i) => !isFollowed(place) || (place[0] === 0 && !evaluator.read.has(numbersOf[i]));
  const fixed = [...places.keys()].filter((i) => isFixed(places[i], i));
  return { places, fixed, run, makes, refused: null };
}

// The number in a text, or a sentence that says why this input cannot have that value. As in Python, temperature, eps
// and cap must be above 0. told: what the input is called there.
function numberOrRefusal(name, text, told = name) {
  const number = Number(text.replace(MINUS, "-"));
  if (text.trim() === "" || !Number.isFinite(number)) return `${told} must be a number, got \u201c${text}\u201d.`;
  if (name === "label_smoothing" && (number < 0 || number > 1)) return `${told} must be from 0 to 1, got ${text}.`;
  if (name === "dropout" && (number < 0 || number >= 1)) return `${told} must be from 0 to below 1, got ${text}.`;
  if (["temperature", "eps", "cap"].includes(name) && number <= 0) return `${told} must be greater than 0, got ${text}.`;
  return number;
}

// The numbers in a box of fields change by dragging sideways, or with the arrow keys up and down.
function makeDraggable(box) {
  const PIXELS = 5; // for one change
  let drag = null; // {field, from: where it began, number, moved}
  const change = (field, from, times) => {
    const step = from !== 0 && Math.abs(from) < 0.05 ? 10 ** Math.floor(Math.log10(Math.abs(from))) : 0.1;
    const text = String(Number((from + times * step).toPrecision(12)));
    if (field.value === text) return;
    field.value = text;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const numberIn = (field) => numberOrRefusal("", field.value);
  box.addEventListener("pointerdown", (event) => {
    const field = event.target.closest("input:enabled");
    if (!field || event.button !== 0 || typeof numberIn(field) === "string") return;
    drag = { field, from: event.clientX, number: numberIn(field), moved: false };
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const times = Math.round((event.clientX - drag.from) / PIXELS);
    drag.moved ||= times !== 0;
    if (drag.moved) change(drag.field, drag.number, times);
    if (drag.moved) getSelection().removeAllRanges();
  });
  for (const end of ["pointerup", "pointercancel"])
    addEventListener(end, () => {
      if (drag?.moved) drag.field.blur();
      drag = null;
    });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    const number = by && numberIn(event.target);
    if (typeof number !== "number") return;
    event.preventDefault();
    change(event.target, number, by);
  });
}
