// The map: the calls of the forward pass as the papers' figures draw them, from the bottom up. What does not depend on
// each other stands side by side, and a residual connection is an arc beside what it goes around. page_map.py tells what
// flows where. Each figure is one box; the first is the whole, the others are what the current step runs in. In the
// backward pass the arrows turn round, and the box whose pullback runs is lit. A click on a box goes there.

const FIGURES = 3; // how many are drawn: the outermost and the innermost ones

class CallMap {
  constructor(recording) {
    this.recording = recording;
    this.boxes = recording.data.map.boxes;
    this.of = recording.data.map.of;
    this.work = recording.data.map.work;
    this.first = new Map(); // from [box, in backward?] to its first step to stop at, else to its first shown step
    for (const good of ["stop", "shown"])
      recording.steps.forEach((step, s) => {
        for (const box of step[good] ? this.path(s) : []) {
          const key = `${box},${recording.backward(s)}`;
          if (!this.first.has(key)) this.first.set(key, s);
        }
      });
  }

  // The boxes in which a step lies, from the outermost on; of a step that stands for a call, with the box of this call.
  path(s, into = true) {
    const { calls, steps } = this.recording;
    const path = [];
    for (let c = (into ? steps[s].into : null) ?? steps[s].call; c !== null; c = calls[path[0]].parent) path.unshift(this.of[c]);
    return path;
  }

  // The step in whose line s runs: that of the innermost figure with lines.
  outer(s, path) {
    const { calls, steps } = this.recording;
    const box = path.findLast((each) => this.boxes[each].row.flatMap(placesIn).some(({ line }) => line !== undefined));
    return steps.findIndex(({ call }, other) => other >= s && calls[call].forward === box && calls[call].backward === this.recording.backward(s));
  }

  // red: the steps whose numbers a mistake changed; the boxes in which they lie are marked.
  draw(element, s, red, goTo) {
    const backward = this.recording.backward(s);
    const work = new Set(this.work[s] ?? []);
    const path = work.size > 1 ? this.path(s, false) : this.path(s);
    const marked = new Set([...red].flatMap((step) => this.path(step)));
    const atFault = new Set([...red].flatMap((step) => this.work[step] ?? [`product ${step}`, `sum ${step}`, `line ${step}`]));
    const own = this.outer(s, path);
    const inside = this.boxes[path.at(-1)].row.flatMap(placesIn).some((part) => meeting(part) === s);
    const here = inside || work.size ? null : path.findLast((box) => this.boxes[box].name); // null: at a sum or product
    const drawn = [...new Set(path)].filter((box) => this.boxes[box].row.length && this.boxes[box].name);
    const figures = drawn.length > FIGURES ? [drawn[0], ...drawn.slice(1 - FIGURES)] : drawn;
    const had = element.contains(document.activeElement);
    const button = (text, title, current, there) =>
      makeButton(text, () => goTo(there), { title, "aria-current": current ? "location" : null });

    const boxOf = (box, whole) => {
      const { name, row } = this.boxes[box];
      const there = this.first.get(`${box},${backward}`) ?? this.first.get(`${box},false`);
      const parts = name || !comesIn(row[0]) ? row : row.slice(1); // what comes in is drawn around a group
      const incoming = whole && this.boxes[row[0]?.box]?.name === "" ? this.boxes[row[0].box].row.slice(0, 1) : [];
      const within = (whole || !name) && row.length ? [rowOf([...incoming.filter(({ input }) => input), ...parts])] : [];
      const open = path.includes(box);
      const kind = name ? `${kindOf(name)}${whole ? " figure" : ""}` : "group";
      const current = (box === here || work.has(`box ${box}`)) && whole === figures.includes(box); // of two places the figure's own
      const head = name ? [button(name, name, current, there)] : [];
      head[0]?.classList.toggle("red", marked.has(box));
      const input = parts === row ? null : row[0].input ?? null;
      const told = { class: `box ${kind}${open ? " open" : ""}`, "data-place": `box ${box}`, "data-input": input };
      return make("div", told, ...head, ...within);
    };
    const inputOf = (name) => make("span", { class: "input", "data-place": `input ${name}` }, symbolOf(name));
    const meetOf = (kind, sign, step) => {
      const inside = button(sign, sign === "+" ? "Sum" : "Matrix product", s === step || work.has(`${kind} ${step}`), step);
      inside.classList.toggle("red", atFault.has(`${kind} ${step}`));
      return make("div", { class: "adds", "data-place": `${kind} ${step}` }, inside);
    };
    const lineOf = ({ name, line, back }, own) => {
      const there = backward ? back ?? line : line;
      const lit = own === line || own === back || work.has(`product ${line}`); // the scale, in the line of a product
      const inside = button(name, name, lit, there);
      inside.classList.toggle("red", atFault.has(`product ${line}`) || atFault.has(`line ${line}`) || red.has(back));
      return make("div", { class: `box ${kindOf(name)} line-of`, "data-place": `line ${line}` }, inside);
    };
    const placeOf = (part) => {
      const place =
        part.line !== undefined
          ? lineOf(part, own)
          : part.box !== undefined
          ? boxOf(part.box, false)
          : part.input !== undefined
            ? inputOf(part.input)
            : part.sum !== undefined
              ? meetOf("sum", "+", part.sum)
              : meetOf("product", "MatMul", part.product);
      if (part.reads) place.prepend(make("span", { class: "reads" }, `${part.reads.join(", ")} `));
      if (!part.beside) return place;
      if (place.matches(".group")) {
        place.dataset.beside = part.beside; // drawn inside, beside what reads it
        return place;
      }
      const beside = part.beside.map((name) => inputOf(name));
      return make("div", { class: "joined" }, make("div", {}, ...beside), place);
    };
    const rowOf = (row) =>
      make("ol", { class: "row" }, ...row.map((part, i) => make("li", {}, partOf(part, row[i + 1]))));
    const partOf = (part, next) => {
      if (part.ranks) {
        const columns = part.ranks.map((rank) => make("li", {}, columnOf(rank.map((inner) => placeOf(inner)))));
        return make("ol", { class: "ranks" }, ...columns);
      }
      if (!part.branches) return placeOf(part);
      const around = part.around === undefined ? [] : [aroundOf(part.around, next)];
      return columnOf([...part.branches.map((row) => rowOf(row)), ...around]);
    };
    const columnOf = (branches) =>
      make("ul", { "aria-label": `${branches.length} branches`, class: "branches" }, ...branches.map((b) => make("li", {}, b)));
    const aroundOf = (name, next) => {
      const residual = next?.sum !== undefined;
      const told = make("span", { class: "hidden" }, symbolOf(name), residual ? " residual connection" : " goes around");
      return make("div", { class: residual ? "around residual" : "around" }, told);
    };

    element.hidden = this.boxes[path[0]].row.length === 0;
    element.classList.toggle("backward", backward);
    element.replaceChildren(
      make("ol", { class: "levels" }, ...figures.map((box) => make("li", {}, boxOf(box, true)))),
    );
    const lit = element.querySelector("[aria-current]");
    if (had) lit?.focus();
    if (lit && element.scrollHeight > element.clientHeight) element.scrollTop = lit.offsetTop - element.clientHeight / 2;
  }
}

// Papers give each kind of box its colour.
const KINDS = ["attention", "norm", "feed forward", "softmax", "linear", "embedding", "gate"];
const kindOf = (name) => (KINDS.find((kind) => name.toLowerCase().includes(kind)) ?? "other").replace(" ", "-");

// X for x, as papers have it, and words without marks of code.
const symbolOf = (name) => (name.length === 1 ? name.toUpperCase() : name.replaceAll("_", " "));

// Whether a part of a row is only what comes in.
const comesIn = (part) => part !== undefined && placesIn(part).every(({ input }) => input !== undefined);

// The places in a part of a row.
function placesIn(part) {
  if (part.branches) return part.branches.flat().flatMap(placesIn);
  return part.ranks ? part.ranks.flat() : [part];
}

// The step that computes a sum or a product.
const meeting = (part) => part.sum ?? part.product ?? part.line;
