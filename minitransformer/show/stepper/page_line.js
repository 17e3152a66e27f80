// One step on the page: its line of code, its formula, what it bound and read, and where each number comes from.

function showCode(recording, s) {
  const call = recording.calls[recording.steps[s].call];
  byId("pass").textContent = call.backward ? "backward" : "forward";
  byId("pass").classList.toggle("backward", call.backward);
  const labels = [];
  for (let c = recording.steps[s].call; c !== null; c = recording.calls[c].parent)
    labels.unshift(recording.calls[c].label);
  byId("path").replaceChildren(
    ...labels.map((label, i) => make("li", i === labels.length - 1 ? { "aria-current": "true" } : {}, label)),
  );
  const line = recording.line(s);
  byId("formula").replaceChildren(line.math ? math(line.math) : make("code", {}, line.text));
  showListing(recording, s, line);
}

function showListing(recording, s, line) {
  const box = byId("listing");
  const source = recording.source(s);
  const right = new Set(recording.data.sources[recording.calls[recording.steps[s].call].source].lines);
  const indent = source.lines[0].match(/^ */)[0].length;
  const rows = [];
  source.lines.forEach((text, i) => {
    if (text.trim() === "" && source.lines[i - 1]?.trim() === "") return;
    const number = source.first + i;
    const lit = number >= line.first && number <= line.last;
    const wrong = recording.bug !== null && !right.has(text);
    const [, code, comment] = text.slice(indent).match(/^(.*?)(\s#\s.*)?$/);
    rows.push(
      make(
        "div",
        { class: `line${lit ? " lit" : ""}${wrong ? " wrong" : ""}`, "aria-current": lit ? "step" : null },
        make("span", { class: "no" }, String(number)),
        make("code", {}, code, ...(comment ? [make("span", { class: "comment" }, comment)] : [])),
      ),
    );
  });
  box.replaceChildren(...rows);
  const lit = box.querySelector(".lit");
  if (lit) box.scrollTop = lit.offsetTop - box.clientHeight / 2 + lit.offsetHeight;
}

// What the step bound. A gradient is beside its value, its finite difference and the gap between the two derivatives.
function showResult(recording, s, covered) {
  const step = recording.steps[s];
  const line = recording.line(s);
  const groups = step.bound.map((bound, b) => {
    const array = recording.value(s, b);
    const group = make("div", { class: "group" });
    if (bound.pair !== undefined) group.append(pairFigure(recording, bound));
    group.append(
      matrixFigure(recording, {
        array,
        name: bound.name,
        kind: bound.gradient ? "gradient" : "value",
        role: "result",
        place: [s, b],
        covered,
      }),
    );
    const numerical = array.data && recording.numerical(s, b);
    if (numerical) group.append(checkFigures(recording, bound, array, numerical, covered));
    else if (bound.told && !recording.edited && !recording.bug)
      group.append(make("p", { class: "verdict told" }, covered ? "" : bound.told));
    return group;
  });
  byId("result-heading").textContent = line.entry ? "The call begins with" : "This line computes";
  byId("result").replaceChildren(...groups);
  if (groups.length === 0) byId("result-heading").textContent = "This line computes nothing";
}

// The value that a gradient belongs to, as the forward pass bound it.
function pairFigure(recording, bound) {
  return placeFigure(recording, recording.places[bound.pair], "pair");
}

function checkFigures(recording, bound, array, numerical, covered) {
  const data = gaps(array, numerical);
  const worst = data.reduce((a, b) => Math.max(a, b), 0);
  const fine = worst <= 1e-6;
  const gap = matrixFigure(recording, {
    array: { shape: array.shape, kind: "float64", data },
    name: bound.name,
    kind: "gap",
    role: "check",
    caption: "gap",
    spoken: `gap of ${bound.name}`,
    covered,
    write: (x) => (x === 0 ? "0" : x < 1e-3 ? x.toExponential(0) : readable(x)),
  });
  gap.classList.toggle("large-gap", !fine);
  gap.append(
    make(
      "p",
      { class: "verdict" },
      covered ? "" : fine ? `✓ at most ${worst.toExponential(0)}` : `✗ up to ${readable(worst)}`,
    ),
  );
  const figure = matrixFigure(recording, {
    array: numerical,
    name: bound.name,
    kind: "numerical",
    role: "check",
    caption: "finite difference",
    spoken: `finite difference of ${bound.name}`,
    covered,
  });
  return make("div", { class: "checks" }, figure, gap);
}

// |hand - numerical| / (1 + |numerical|), as in verify.gradients.
function gaps(hand, numerical) {
  return hand.data.map((x, i) => Math.abs(x - numerical.data[i]) / (1 + Math.abs(numerical.data[i])));
}

// operandsOf: the arrays that the line reads. othersOf: the other arrays that its call has bound before.
function operandsOf(recording, s) {
  const places = recording.line(s).uses.map((name) => recording.lookup(`${recording.label(s)}.${name}`, s));
  return places.filter((place) => place && isNumeric(recording.recorded(...place)));
}

function othersOf(recording, s) {
  const shown = new Set([...operandsOf(recording, s), ...recording.steps[s].bound.map((_, b) => [s, b])].map(String));
  const found = new Map();
  const calls = [recording.steps[s].call, recording.calls[recording.steps[s].call].forward];
  for (let i = 0; i < s; i++) {
    if (calls.includes(recording.steps[i].call))
      recording.steps[i].bound.forEach((bound, b) => found.set(bound.name, [i, b]));
  }
  return [...found.values()].filter((place) => !shown.has(String(place)) && isNumeric(recording.recorded(...place)));
}

const isNumeric = (array) => array.shape.length > 0 || array.kind.startsWith("float");

function placeFigure(recording, [s, b], role) {
  const { name, gradient } = recording.steps[s].bound[b];
  const kind = gradient ? "gradient" : "value";
  return matrixFigure(recording, { array: recording.value(s, b), name, kind, role, place: [s, b] });
}

function showOperands(recording, s) {
  const figures = operandsOf(recording, s).map((place) => placeFigure(recording, place, "operand"));
  byId("operands").replaceChildren(...figures);
  byId("operands-heading").hidden = figures.length === 0;
}

function showOthers(recording, s) {
  const places = othersOf(recording, s);
  byId("others-box").hidden = places.length === 0;
  byId("others").replaceChildren(
    ...(byId("others-box").open ? places.map((p) => placeFigure(recording, p, "operand")) : []),
  );
}

// Where a cell comes from: {place, term, cells, note}. place: where the number was computed; for an argument or for the
// result of an inner call this is another step. term: the written-out sum, or null. cells: its numbers, [place, flat].
function originOf(recording, place, flat) {
  for (let from = place; from !== undefined; from = recording.places[recording.steps[from[0]].bound[from[1]].origin])
    place = from;
  const [s, b] = place;
  const from = (recording.bug && recording.bug.fromAt.get(String(place))) || recording.steps[s].bound[b].from;
  const out = { place, term: null, cells: [], note: "" };
  if (!from)
    return { ...out, note: `Sums are written out for arrays of up to ${recording.data.limits.expanded} numbers.` };
  if (from.why) return { ...out, note: from.why };
  const cells = from.cells[flat];
  for (let i = 0; i < cells.length; i += 2) out.cells.push([recording.places[cells[i]], cells[i + 1]]);
  return { ...out, term: recording.data.terms[from.terms[flat]] };
}

function numberAt(recording, place, flat) {
  const array = recording.value(...place);
  return array.data ? readable(array.data[flat], array.kind) : "…";
}

function showOrigin(recording, s, asked, goTo) {
  document.querySelectorAll(".asked, .source").forEach((found) => found.classList.remove("asked", "source"));
  document.querySelectorAll(".matrix.extra").forEach((figure) => figure.remove());
  byId("sum").hidden = asked === null;
  if (asked === null) return;
  const origin = originOf(recording, [asked.s, asked.b], asked.flat);
  const [at, which] = origin.place;
  const place = indexOf(recording.recorded(...origin.place).shape, asked.flat);
  const left = recording.steps[at].bound[which].name + (place.length ? `[${place.join(", ")}]` : "");
  const number = numberAt(recording, origin.place, asked.flat);
  const text =
    origin.term === null
      ? number
      : written(
          origin.term,
          origin.cells.map(([from, cell]) => numberAt(recording, from, cell)),
        )[0];
  byId("sum-text").replaceChildren(
    make("code", {}, `${left} = ${text}`),
    ...(text === number ? [] : [make("code", { class: "total" }, ` = ${number}`)]),
  );
  byId("sum-note").replaceChildren(origin.note ? `${origin.note} ` : "");
  if (at !== s) {
    const link = make("a", { href: `#step=${at}` }, `See step ${at}: ${recording.label(at)}`);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goTo(at);
    });
    byId("sum-note").append(link);
  }
  light(recording, [asked.s, asked.b], asked.flat, "asked");
  const places = new Map(origin.cells.map(([from]) => [String(from), from]));
  for (const from of places.values()) {
    if (
      !document.querySelector(`.numbers [data-place="${from.join(",")}"]`) &&
      isNumeric(recording.recorded(...from))
    ) {
      const figure = placeFigure(recording, from, "operand");
      figure.classList.add("extra");
      byId("operands").append(figure);
    }
  }
  byId("operands-heading").hidden = byId("operands").children.length === 0;
  for (const [from, cell] of origin.cells) light(recording, from, cell, "source");
}

function light(recording, place, flat, mark) {
  for (const found of document.querySelectorAll(`.numbers [data-place="${place.join(",")}"] [data-flat="${flat}"]`)) {
    found.classList.add(mark);
  }
}

// What a screen reader says at a step.
function spoken(recording, s, covered) {
  const call = recording.calls[recording.steps[s].call];
  const shapes = recording.steps[s].bound.map(
    (bound, b) => `${bound.name} is ${shapeText(recording.recorded(s, b).shape).replaceAll("×", "by")}`,
  );
  const text = recording.line(s).text.split(/\s#\s/)[0].trim();
  return `Step ${s}, ${call.backward ? "backward" : "forward"}, ${call.label}: ${text}. ${shapes.join(", ")}${
    covered ? ", covered" : ""
  }.`;
}
