// Edited inputs: the twin recomputes every number, with or without a mistake, and the finite differences.

// Run a twin's forward pass on inputs by name: {output, backward, numbers}. numbers: a Map from "label.name" to the
// numbers bound there, in order; backward adds to it. mistake: one of MISTAKES. displaced: {title, flat, by} adds `by`
// to one number as soon as it is bound.
function runForward(name, inputs, mistake, displaced) {
  const numbers = new Map();
  const bound = {};
  const note = (label, values) => {
    const names = (bound[label] ??= {});
    for (const [key, value] of Object.entries(values)) {
      const title = `${label}.${key}`;
      names[key] = value;
      if (mistake && mistake[0] === title) names[key] = mistake[1](names);
      if (displaced && displaced.title === title) names[key] = moved(value, displaced.flat, displaced.by);
      numbers.set(title, Float64Array.from([names[key]].flat(2)));
    }
    return names;
  };
  const [output, backward] = TWINS[name](inputs, note);
  return { output, backward, numbers };
}

function moved(value, flat, by) {
  if (!Array.isArray(value)) return value + by;
  const size = [value[0]].flat().length;
  return value.map((part, i) => (i === Math.floor(flat / size) ? moved(part, flat % size, by) : part));
}

// Run a twin and its backward on the gradient of the output: Map from "label.name" to the numbers.
function runTwin(name, inputs, upstream, mistake) {
  const { backward, numbers } = runForward(name, inputs, mistake);
  backward(upstream);
  return numbers;
}

// Central differences of L = Σ upstream · output with respect to every number of a title, or null if the twin does not
// bind it: dL/dx ≈ Σ upstream · (output(x + h) − output(x − h)) / 2h with h = 10⁻⁵ max(1, |x|), as in verify.gradients.
function finiteDifference(name, inputs, upstream, mistake, title) {
  const numbers = runForward(name, inputs, mistake).numbers.get(title);
  if (!numbers) return null;
  const weights = [upstream].flat(2);
  return numbers.map((x, flat) => {
    const h = 1e-5 * Math.max(1, Number.isFinite(x) ? Math.abs(x) : 1);
    const [ahead, behind] = [h, -h].map((by) =>
      [runForward(name, inputs, mistake, { title, flat, by }).output].flat(2),
    );
    return weights.reduce((total, weight, i) => total + weight * (ahead[i] - behind[i]), 0) / (2 * h);
  });
}

// What the page shows for edited inputs. numbers: by title; right: under a mistake, those without it; wrong: by title, the
// cells that the mistake changed;
// difference(title): the finite differences.
function recompute(name, inputs, upstream, bug) {
  const mistake = bug ? MISTAKES[bug.name] : null;
  const numbers = runTwin(name, inputs, upstream, mistake);
  const wrong = new Map();
  const right = mistake ? runTwin(name, inputs, upstream) : new Map();
  for (const [title, expected] of right) {
    const cells = [...expected.keys()].filter((i) => !near(numbers.get(title)[i], expected[i]));
    if (cells.length) wrong.set(title, new Set(cells));
  }
  const known = new Map();
  const difference = (title) => {
    if (!known.has(title)) known.set(title, finiteDifference(name, inputs, upstream, mistake, title));
    return known.get(title);
  };
  return { numbers, right, wrong, difference };
}

const near = (x, right) =>
  Object.is(x, right) || (Number.isFinite(right) && Math.abs(x - right) <= 1e-9 * (1 + Math.abs(right)));

// Which inputs can be edited: {places, fixed, run, refused}. fixed: the numbers of those that the twin takes as they were
// recorded, such as dropout: an edit would not reach what follows. refused: a sentence that says why no input can be
// edited, else null: the page has no twin of the recorded function, or the twin, run on the recorded inputs, does not give
// every recorded number (because of a mask, for example).
function editable(recording) {
  const { name } = recording.data;
  const entry = recording.steps.findIndex((_, s) => recording.backward(s));
  const refuse = (reason) => {
    return { places: [], fixed: [], run: null, refused: `${reason} To change an input, record again in Python.` };
  };
  if (!TWINS[name] || entry < 0)
    return refuse(`This page cannot recompute ${name}, only ${Object.keys(TWINS).join(", ")}.`);
  const different = `This page recomputes ${name} only for ${TAKEN[name]}.`;
  const isOpen = ([s, b]) => recording.recorded(s, b).kind.startsWith("float") && recording.recorded(s, b).data;
  const places = [0, entry].flatMap((s) => recording.steps[s].bound.map((_, b) => [s, b])).filter(isOpen);
  const run = (arrays, bug) => {
    const nested = arrays.map((numbers, i) => nest(numbers, recording.recorded(...places[i]).shape));
    const named = Object.fromEntries(
      places.slice(0, -1).map(([s, b], i) => [recording.steps[s].bound[b].name, nested[i]]),
    );
    return recompute(name, named, nested.at(-1), bug);
  };
  let numbers;
  try {
    numbers = run(places.map((place) => recording.recorded(...place).data)).numbers;
  } catch {
    return refuse(different);
  }
  const covered = recording.steps.every(
    (step, s) =>
      !step.shown ||
      step.bound.every((bound, b) => {
        const array = recording.recorded(s, b);
        if (!array.kind.startsWith("float")) return true;
        const twin = numbers.get(recording.title(s, b));
        return (
          twin &&
          array.data &&
          twin.length === array.data.length &&
          twin.every((x, i) => Math.abs(x - array.data[i]) <= 1e-9 * (1 + Math.abs(x)))
        );
      }),
  );
  if (!covered) return refuse(different);
  const follows = ([s, b], i) => {
    const arrays = places.map((place) => recording.recorded(...place).data.slice());
    arrays[i][0] = arrays[i][0] / 2 + 0.125;
    try {
      return run(arrays).numbers.get(recording.title(s, b))[0] === arrays[i][0];
    } catch {
      return false;
    }
  };
  return { places, fixed: [...places.keys()].filter((i) => !follows(places[i], i)), run, refused: null };
}

// The number in a text, or a sentence that says why this input cannot have that value. As in Python, temperature and eps
// must be above 0.
function numberOrRefusal(name, text) {
  const number = Number(text.replace(MINUS, "-"));
  if (text.trim() === "" || !Number.isFinite(number)) return `${name} must be a number, got \u201c${text}\u201d.`;
  if (["temperature", "eps"].includes(name) && number <= 0) return `${name} must be greater than 0, got ${text}.`;
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

function nest(numbers, shape) {
  if (shape.length === 0) return numbers[0];
  if (shape.length === 1) return [...numbers];
  return Array.from({ length: shape[0] }, (_, i) => [...numbers.slice(i * shape[1], (i + 1) * shape[1])]);
}
