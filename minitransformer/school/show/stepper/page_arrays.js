// The recording: its arrays, and the numbers of each step.

class Recording {
  constructor(data) {
    this.data = data;
    this.steps = data.steps;
    this.calls = data.calls;
    this.bug = null; // the mistake that is switched on, one of data.bugs
    this.secret = false; // whether its line is to be found
    this.edited = null; // with edited inputs: what recompute() gives
    this.at = 0; // the step that is shown
    this.places = []; // for every binding, by its number: [step, which binding of the step]
    this.numbers = new Map(); // from "step,binding" to this number
    this.history = new Map(); // from a title to the places that bound it, in order
    this.steps.forEach((step, s) =>
      step.bound.forEach((bound, b) => {
        this.numbers.set(`${s},${b}`, this.places.length);
        this.places.push([s, b]);
        const title = this.title(s, b);
        if (!this.history.has(title)) this.history.set(title, []);
        this.history.get(title).push([s, b]);
      }),
    );
    this.decoded = new Map();
  }

  call(s) {
    return this.calls[this.steps[s].call];
  }

  label(s) {
    return this.call(s).label;
  }

  // What a step is called: the page counts its stops; other lines, and all if it shows all, by their place in the run.
  called(s) {
    if (byId("all").checked || !this.steps[s].stop) return `line ${s}`;
    return `step ${this.steps.slice(0, s + 1).filter(({ stop }) => stop).length}`;
  }

  numberOf(place) {
    return this.numbers.get(String(place));
  }

  title(s, b) {
    return `${this.label(s)}.${this.steps[s].bound[b].name}`;
  }

  backward(s) {
    return this.call(s).backward;
  }

  // The names of the boxes of the map around a step, from the outermost on; a group has none.
  crumbs(s) {
    const names = [];
    for (let c = this.steps[s].call, last = null; c !== null; c = this.calls[c].parent) {
      const box = this.data.map.of[c];
      if (box !== last && this.data.map.boxes[box].name) names.unshift(this.data.map.boxes[box].name);
      last = box;
    }
    return names;
  }

  // Whether the last axis before rows and columns counts heads: inside multi-head attention, which reads one axis fewer.
  hasHeads(s, shape) {
    let c = this.steps[s].call;
    while (c !== null && !/^(MultiHead|Latent)Attention(#|$)/.test(this.calls[c].label)) c = this.calls[c].parent;
    if (c === null) return false;
    const { forward } = this.calls[c];
    const head = this.steps.find(({ call }) => call === forward);
    return head.bound.length > 0 && shape.length > this.array(head.bound[0].array).shape.length;
  }

  // Whether call c is `outer` or runs inside it.
  within(c, outer) {
    return c !== null && (c === outer || this.within(this.calls[c].parent, outer));
  }

  // The line of a step; with a mistake switched on, the line of the wrong code.
  line(s) {
    const other = this.bug && !this.secret && this.bug.lineOf.get(s);
    return this.data.lines[typeof other !== "number" ? this.steps[s].line : other];
  }

  // The places of the arrays that a step shows: those that it bound, with the gradients of parameters that belong to it,
  // or, at a return, those that it hands back.
  results(s) {
    const { bound, returned = [], also = [] } = this.steps[s];
    const others = [...(bound.length ? [] : returned), ...also].map((binding) => this.places[binding]);
    return [...bound.map((_, b) => [s, b]), ...others];
  }

  source(s) {
    const call = this.call(s);
    const other = this.bug && !this.secret && this.bug.sources[call.label];
    return this.data.sources[typeof other !== "number" ? call.source : other];
  }

  // Array number `id`: {shape, kind, data}, or {shape, kind, summary, corner} where it was too large.
  array(id) {
    if (!this.decoded.has(id)) this.decoded.set(id, decode(this.data.arrays[id]));
    return this.decoded.get(id);
  }

  recorded(s, b) {
    return this.array(this.steps[s].bound[b].array);
  }

  // What a step bound, as it is shown now: as recorded, with the mistake's numbers, or recomputed from edited inputs.
  // wrong: the cells that the mistake changed. was: the numbers before the mistake or, without one, before the edit.
  value(s, b) {
    const value = this.recorded(s, b);
    if (!value.data) return value;
    const wrong = this.wrong(s, b);
    if (this.edited) {
      const n = this.numberOf([s, b]);
      return { ...value, data: this.edited.numbers[n], wrong, was: this.edited.right?.[n] ?? value.data };
    }
    if (!wrong) return value;
    const data = value.data.slice();
    const { numbers } = this.bug.numberAt.get(`${s},${b}`);
    [...wrong].forEach((cell, i) => {
      data[cell] = numbers[i];
    });
    return { ...value, data, wrong, was: value.data };
  }

  // The cells that the mistake changed, or undefined.
  wrong(s, b) {
    if (this.edited) return this.edited.wrong.get(this.numberOf([s, b]));
    return this.bug?.numberAt.get(`${s},${b}`)?.cells;
  }

  // The shown steps that bind a number which the mistake changed.
  wrongSteps() {
    const red = this.places.filter(([s, b]) => this.steps[s].shown && this.wrong(s, b)?.size);
    return new Set(red.map(([s]) => s));
  }

  // Whether a line that only gave an array another name changes its numbers with the mistake.
  isBent(s) {
    const { shown, bound } = this.steps[s];
    const differs = ({ origin }, b) => {
      if (origin === undefined || (!this.wrong(s, b)?.size && !this.wrong(...this.places[origin])?.size)) return false;
      const [now, before] = [this.value(s, b).data, this.value(...this.places[origin]).data];
      return now?.some((x, i) => !near(x, before[i])) ?? false;
    };
    return Boolean(this.bug && shown && bound.some(differs));
  }

  outputIsWrong() {
    const place = this.places[this.data.output];
    return place !== undefined && this.wrong(...place)?.size > 0;
  }

  // The finite difference to compare a gradient with, or null. Those of the recording are useless after a mistake that
  // changes the output; edited inputs have differences of their own, for the output as it is now.
  numerical(s, b) {
    const bound = this.steps[s].bound[b];
    if (bound.numerical === undefined) return null;
    const recorded = this.array(bound.numerical);
    if (!this.edited) return recorded.data && !this.outputIsWrong() ? recorded : null;
    const data = this.edited.difference(this.checkedPair(bound));
    return data && { ...recorded, data };
  }

  // The value whose finite differences belong to a gradient, or to the one that it is another name for.
  checkedPair(bound) {
    if (bound.pair !== undefined) return bound.pair;
    const [s, b] = this.places[bound.origin];
    return this.checkedPair(this.steps[s].bound[b]);
  }

  // Where a title was last bound before step `s`.
  lookup(title, s) {
    const places = this.history.get(title) || [];
    for (let i = places.length - 1; i >= 0; i--) {
      if (places[i][0] < s) return places[i];
    }
    return null;
  }

  switchBug(bug, secret = false) {
    Object.assign(this, { bug, secret });
    if (bug) this.decodeBug(bug);
  }

  decodeBug(bug) {
    if (!bug.numberAt) {
      bug.numberAt = new Map(
        bug.numbers.map(([s, b, change]) => {
          const [cells, packed] = this.data.changes[change];
          const numbers = floats(packed, Float64Array);
          return [`${s},${b}`, { cells: new Set(cells ?? numbers.keys()), numbers }];
        }),
      );
      bug.lineOf = new Map(bug.lines);
      bug.fromAt = new Map(bug.from.map(([s, b, from]) => [`${s},${b}`, from]));
    }
  }
}

function decode(entry) {
  if (entry.data) return { ...entry, data: Float64Array.from(entry.data, toNumber) };
  if (entry.float32) return { ...entry, data: floats(entry.float32) };
  return entry.corner ? { ...entry, corner: decode(entry.corner) } : entry;
}

function toNumber(text) {
  return { inf: Infinity, "-inf": -Infinity, nan: NaN }[text] ?? Number(text);
}

const MINUS = "\u2212";

// How to write the numbers of one array: as integers if all are whole, else with as many decimals as they have, four at
// most, or a power of ten.
function numberFormat(array) {
  if (array.kind === "bool") return (x) => (x ? "True" : "False");
  if (array.shape.length === 0) return (x) => readable(x, array.kind);
  let largest = 0,
    whole = true;
  for (const x of array.data) {
    if (!Number.isFinite(x)) continue;
    largest = Math.max(largest, Math.abs(x));
    whole = whole && Number.isInteger(x);
  }
  if (largest > 0 && largest < 1e-13) return () => "≈ 0"; // what rounding left
  if (whole && largest < 1e6) return (x) => signed(x, (y) => y.toFixed(0));
  if (largest >= 1e4 || (largest > 0 && largest < 1e-2))
    return (x) => signed(x, (y) => (y === 0 ? "0" : y.toExponential(2)));
  const decimals = Math.max(...Array.from(array.data, (x) => (Number.isFinite(x) ? decimalsOf(x) : 0)));
  return (x) => signed(x, (y) => y.toFixed(decimals));
}

// How many decimals a number has, of four.
const decimalsOf = (x) => (trimZeros(x.toFixed(4)).split(".")[1] ?? "").length;

function signed(x, write) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x < 0 ? `${MINUS}∞` : "∞";
  const text = write(Math.abs(x));
  return x < 0 && Number(text) !== 0 ? MINUS + text : text;
}

// The index of a flat place in an array: [2, 3] for place 13 in the shape (4, 5).
function indexOf(shape, flat) {
  const index = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index.unshift(flat % shape[axis]);
    flat = Math.floor(flat / shape[axis]);
  }
  return index;
}
