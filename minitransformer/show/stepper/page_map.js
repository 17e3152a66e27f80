// The map: the calls of the forward pass as boxes in boxes. In each, data flows from left to right; what does not depend
// on one another lies in branches, one below the other. page_map.py tells what flows where. What the current step runs
// in is lit and open, in the backward pass the box whose pullback runs; a click on a box goes there.

const NESTED = 3; // so many rows are drawn in one another; those around them stand before them, one after the other

class CallMap {
  constructor(recording) {
    this.recording = recording;
    this.boxes = recording.data.map.boxes;
    this.of = recording.data.map.of;
    this.first = new Map(); // from [box, in backward?] to its first shown step
    recording.steps.forEach((step, s) => {
      if (!step.shown) return;
      for (const box of this.path(s)) {
        const key = `${box},${recording.backward(s)}`;
        if (!this.first.has(key)) this.first.set(key, s);
      }
    });
  }

  // The boxes in which a step lies, from the outermost on.
  path(s) {
    const { calls, steps } = this.recording;
    const path = [];
    for (let c = steps[s].call; c !== null; c = calls[path[0]].parent) path.unshift(this.of[c]);
    return path;
  }

  // red: the steps whose numbers a mistake changed; the boxes in which they lie are marked.
  draw(element, s, red, goTo) {
    const backward = this.recording.backward(s);
    const path = this.path(s);
    const marked = new Set([...red].flatMap((step) => this.path(step)));
    const own = this.boxes[path.at(-1)].row;
    const here = own.flatMap(placesIn).some((part) => meeting(part) === s) ? null : path.at(-1); // null: at a sum or product
    const had = element.contains(document.activeElement);
    const button = (text, title, current, there) => {
      const made = make("button", { type: "button", title, ...(current ? { "aria-current": "location" } : {}) }, text);
      made.addEventListener("click", () => goTo(there));
      return made;
    };

    const boxOf = (box, drawn) => {
      const { name, row } = this.boxes[box];
      const there = this.first.get(`${box},${backward}`) ?? this.first.get(`${box},false`);
      const head = button(name, this.recording.calls[box].label, box === here, there);
      head.classList.toggle("red", marked.has(box));
      const open = path.includes(box);
      const within = drawn(box, open, row) && row.length ? [rowOf(row, drawn)] : [];
      return make("div", { class: `box${open ? " open" : ""}`, "data-place": `box ${box}` }, head, ...within);
    };
    const inputOf = (name) => make("span", { class: "input", "data-place": `input ${name}` }, name);
    const meetOf = (kind, sign, step) => {
      const inside = button(sign, this.recording.line(step).text, s === step, step);
      return make("div", { class: "adds", "data-place": `${kind} ${step}` }, inside);
    };
    const placeOf = (part, drawn) => {
      const place =
        part.box !== undefined
          ? boxOf(part.box, drawn)
          : part.input !== undefined
            ? inputOf(part.input)
            : part.sum !== undefined
              ? meetOf("sum", "+", part.sum)
              : meetOf("product", "×", part.product);
      if (part.reads) place.prepend(make("span", { class: "reads" }, `${part.reads.join(", ")} `));
      if (!part.beside) return place;
      const beside = part.beside.map((name) => inputOf(name));
      return make("div", { class: "joined" }, make("div", {}, ...beside), place);
    };
    const rowOf = (row, drawn) =>
      make("ol", { class: "row" }, ...row.map((part, i) => make("li", {}, partOf(part, row[i + 1], drawn))));
    const partOf = (part, next, drawn) => {
      if (part.ranks) {
        const columns = part.ranks.map((rank) => make("li", {}, columnOf(rank.map((inner) => placeOf(inner, drawn)))));
        return make("ol", { class: "ranks" }, ...columns);
      }
      if (!part.branches) return placeOf(part, drawn);
      const around = part.around === undefined ? [] : [aroundOf(part.around, next)];
      return columnOf([...around, ...part.branches.map((row) => rowOf(row, drawn))]);
    };
    const columnOf = (branches) =>
      make("ul", { "aria-label": `${branches.length} branches`, class: "branches" }, ...branches.map((b) => make("li", {}, b)));
    const aroundOf = (name, next) => {
      const residual = next?.sum !== undefined;
      const told = make("span", {}, make("em", {}, name), residual ? " residual connection" : " goes around");
      return make("div", { class: residual ? "around residual" : "around" }, told);
    };

    element.hidden = this.boxes[path[0]].row.length === 0;
    element.classList.toggle("backward", backward);
    const rows = path.map((box) => this.boxes[box].row).filter((row) => row.length);
    const around = rows.splice(0, rows.length - NESTED).map((row) => rowOf(row, () => false));
    const few = own.flatMap(placesIn).length <= 2 * NESTED; // then the residual connections inside are shown, too
    const inner = (box, open, row) => open || (few && own.some((part) => part.box === box) && row.some(isResidual));
    const levels = [...around, ...rows.slice(0, 1).map((row) => rowOf(row, inner))].map((row) => make("li", {}, row));
    element.replaceChildren(make("ol", { class: "levels" }, ...levels));
    const lit = element.querySelector("[aria-current]");
    if (had) lit?.focus();
    if (lit && element.scrollHeight > element.clientHeight) element.scrollTop = lit.offsetTop - element.clientHeight / 2;
  }
}

const isResidual = (part, i, row) => part.around !== undefined && row[i + 1]?.sum !== undefined;

// The places in a part of a row.
function placesIn(part) {
  if (part.branches) return part.branches.flat().flatMap(placesIn);
  return part.ranks ? part.ranks.flat() : [part];
}

// The step that computes a sum or a product.
const meeting = (part) => part.sum ?? part.product;
