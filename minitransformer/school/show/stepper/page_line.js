// One step on the page: its line of code, its formula, what it bound and read, and where each number comes from.

function showCode(recording, s, covered) {
  const call = recording.call(s);
  byId("pass").textContent = call.backward ? "backward" : "forward";
  for (const id of ["pass", "listing", "formulas"]) byId(id).classList.toggle("backward", call.backward);
  const labels = recording.crumbs(s);
  byId("path").replaceChildren(
    ...labels.map((label, i) => make("li", i === labels.length - 1 ? { "aria-current": "true" } : {}, label)),
  );
  const line = recording.line(s);
  byId("formula").replaceChildren(formulaOf(line));
  fit(byId("formula"));
  const address = call.backward && !line.entry && data.derive?.[call.forward];
  const link = address ? [" ", make("a", { href: address }, "Derive this line")] : [];
  byId("sentence").replaceChildren(...sentenceOf(recording, s, line, covered), ...link);
  showFormulas(recording, s);
  showListing(recording, s, line);
  scrollToLine();
}

function showListing(recording, s, line) {
  const box = byId("listing");
  const source = recording.source(s);
  const right = recording.data.sources[recording.call(s).source];
  const indent = source.lines[0].match(/^ */)[0].length;
  const rows = [];
  let number = source.first - 1;
  let before = "";
  for (const [text, kind] of mergedLines(right.lines, source.lines)) {
    const old = kind === "old";
    if (!old) number++;
    if (text.trim() === "" && before.trim() === "") continue;
    before = text;
    const lit = !old && number >= line.first && number <= line.last;
    const wrong = kind === "new" && text.trim() !== "";
    const [, code, comment] = text.slice(indent).match(/^(.*?)(\s#\s.*)?$/);
    const style = `--hang: ${text.search(/\S|$/) - indent + 4}ch`; // where a line that is too long continues
    rows.push(
      make(
        "div",
        { class: `line${lit ? " lit" : ""}${wrong ? " wrong" : ""}`, "aria-current": lit ? "step" : null, style },
        make("span", { class: "no" }, old ? "" : String(number)),
        make("code", {}, old ? make("del", {}, code) : code, ...(comment ? [make("span", { class: "comment" }, comment)] : [])),
      ),
    );
  }
  box.replaceChildren(...rows);
}

function scrollToLine() {
  for (const box of [byId("formulas"), byId("listing")]) {
    const lit = box.querySelector(".lit");
    if (lit) box.scrollTop = lit.offsetTop - box.clientHeight / 2 + lit.offsetHeight;
  }
}

// What the step bound, and beside each gradient the value that it belongs to.
function showResult(recording, s, covered) {
  const step = recording.steps[s];
  const line = recording.line(s);
  const isSwitch = ([at, b]) => {
    const { shape, kind, data } = recording.value(at, b);
    return shape.length === 0 && (!kind.startsWith("float") || data[0] === 0);
  };
  const isHidden = (place) => step.stop && line.entry && !byId("all").checked && isSwitch(place);
  const groups = recording.results(s).filter((place) => !isHidden(place)).map((place) => {
    const bound = recording.steps[place[0]].bound[place[1]];
    const figure = matrixFigure(recording, {
      array: recording.value(...place),
      name: bound.name,
      kind: bound.gradient ? "gradient" : "value",
      role: "result",
      place,
      covered,
    });
    const pair = bound.pair === undefined || step.returned ? [] : [placeFigure(recording, recording.places[bound.pair], "pair")];
    const also = step.bound.length && place[0] !== s && !figure.querySelector(".wrong") && !covered;
    return make("div", { class: also ? "group also" : "group" }, figure, ...pair);
  });
  const more = groups.filter((group) => group.matches(".also"));
  const says = line.entry ? "The call begins with" : step.returned ? "This line returns" : "This line computes";
  byId("result-heading").textContent = groups.length ? says : "This line computes no number";
  byId("result").replaceChildren(...groups, ...(more.length ? [moreResults(more)] : []));
}

// Where only this fits: a button for the gradients of the parameters.
function moreResults(groups) {
  const names = groups.map((group) => [...group.querySelectorAll(".result figcaption math")].at(-1).cloneNode(true));
  const label = ["Also ", ...names.flatMap((name, i) => (i ? [", ", name] : [name])), ": show"];
  const show = ({ currentTarget }) => {
    currentTarget.remove();
    dispatchEvent(new Event("resize"));
  };
  return makeButton(label, show, { class: "more-results" });
}

// Each gradient beside its finite difference, folded unless the gap between the two is large; or why it has none.
function showChecks(recording, s, covered) {
  const checks = recording.results(s).flatMap(([from, b]) => {
    const bound = recording.steps[from].bound[b];
    const numerical = numericalAt(recording, from, b);
    if (numerical) return [checkOf(recording, [from, b], numerical)];
    const told = bound.told && !recording.edited && !recording.bug;
    return told ? [make("p", { class: "verdict told" }, bound.told)] : [];
  });
  byId("checks").replaceChildren(...(covered ? [] : checks));
}

// The same for printing.
function checkLines(recording, s) {
  return recording.results(s).flatMap(([from, b]) => {
    const numerical = numericalAt(recording, from, b);
    return numerical ? [make("p", {}, ...checkLine(nameOf(recording, [from, b]), gaps(recording.value(from, b), numerical)))] : [];
  });
}

const numericalAt = (recording, s, b) => recording.value(s, b).data && recording.numerical(s, b);

function checkOf(recording, place, numerical) {
  const { name } = recording.steps[place[0]].bound[place[1]];
  const told = nameOf(recording, place);
  const found = gaps(recording.value(...place), numerical);
  const figure = (caption, kind, array, about, write) =>
    matrixFigure(recording, { array, name, kind, role: "check", caption, about, spoken: `${caption} of ${told.textContent}`, write });
  const small = (x) => (x === 0 ? "0" : x < 1e-3 ? x.toExponential(0) : readable(x));
  const slope = "The slope without a formula: move one number by ±h, run forward, and divide the change of the loss by 2h";
  const large = !(largest(found) <= SMALL_GAP);
  return make(
    "details",
    { class: large ? "check large-gap" : "check", open: large },
    make("summary", { title: `gap = ${recording.data.glossary.gap}` }, ...checkLine(told, found)),
    make(
      "div",
      { class: "matrices" },
      figure("finite difference", "numerical", numerical, slope),
      figure("gap", "gap", { ...numerical, data: found }, undefined, small),
    ),
  );
}

const SMALL_GAP = 1e-6;
const largest = (found) => found.reduce((a, b) => Math.max(a, b), 0);

function checkLine(told, found) {
  const worst = largest(found);
  const verdict = worst <= SMALL_GAP ? `✓ at most ${worst.toExponential(0)}` : `✗ up to ${readable(worst)}`;
  return ["Gap of ", told, " to its finite difference: ", make("span", { class: "verdict" }, verdict)];
}

// |hand - numerical| / (1 + |numerical|), as in verify.gradients.
function gaps(hand, numerical) {
  return hand.data.map((x, i) => Math.abs(x - numerical.data[i]) / (1 + Math.abs(numerical.data[i])));
}

// operandsOf: the arrays that the line reads or, as a layer's weights, gives to what it calls. othersOf: the other arrays that its call has bound before.
function operandsOf(recording, s) {
  const places = recording.line(s).uses.map((name) => recording.lookup(`${recording.label(s)}.${name}`, s));
  const given = (recording.steps[s].given ?? []).map((binding) => recording.places[binding]);
  return [...places, ...given].filter((place) => place && isNumeric(recording.recorded(...place)));
}

function othersOf(recording, s) {
  const shown = new Set([...operandsOf(recording, s), ...recording.results(s)].map(String));
  const found = new Map();
  const calls = [recording.steps[s].call, recording.call(s).forward];
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
  const own = new Set(recording.results(s).map(String)); // what a return reads is what it hands back
  const places = operandsOf(recording, s).filter((place) => !own.has(String(place)));
  const figures = places.map((place) => placeFigure(recording, place, "operand"));
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
  if (from.why) return { ...out, note: inSymbols() ? inWords(from.why) : from.why };
  const cells = from.cells[flat];
  for (let i = 0; i < cells.length; i += 2) out.cells.push([recording.places[cells[i]], cells[i + 1]]);
  return { ...out, term: recording.data.terms[from.terms[flat]] };
}

// Why a number has no sum, without the code that the reason names.
const inWords = (why) =>
  /was passed to the call(: it is self\.[\w.]+)?\.$/.test(why) ? "It is given, not computed." : "This page has no sum for it.";

// ", was 0.5774" for a number that a mistake or an edit changed, else "".
function beforeIt({ data, was, kind }, flat) {
  return was && !near(data[flat], was[flat]) ? `, was ${readable(was[flat], kind)}` : "";
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
  const [at] = origin.place;
  const place = indexOf(recording.recorded(...origin.place).shape, asked.flat);
  const left = `\`${[asked.s, asked.b]}\`${place.length ? `[${place.join(", ")}]` : ""}`;
  const number = numberAt(recording, origin.place, asked.flat);
  const text =
    origin.term === null
      ? number
      : written(
          origin.term,
          origin.cells.map(([from, cell]) => numberAt(recording, from, cell)),
        )[0];
  byId("sum-text").replaceChildren(
    make("code", {}, ...named(recording, `${left} = ${text}`)),
    ...(text === number ? [] : [make("code", { class: "total" }, ` = ${number}`)]),
    beforeIt(recording.value(...origin.place), asked.flat),
  );
  byId("sum-note").replaceChildren(origin.note ? `${origin.note} ` : "");
  if (at !== s) byId("sum-note").append(linkTo(at, `See ${recording.called(at)}: ${recording.crumbs(at).at(-1)}`, goTo));
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

// A link to a step, which leads there without a change of the page.
function linkTo(s, text, goTo) {
  const link = make("a", { href: `#step=${s}` }, text);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    goTo(s);
  });
  return link;
}

function light(recording, place, flat, mark) {
  for (const found of document.querySelectorAll(`.numbers [data-place="${place.join(",")}"] [data-flat="${flat}"]`)) {
    found.classList.add(mark);
  }
}

// What a screen reader says at a step.
function spoken(recording, s, covered) {
  const call = recording.call(s);
  const shapes = recording.results(s).map(([from, b]) => {
    return `${nameOf(recording, [from, b]).textContent} is ${shapeText(recording.recorded(from, b).shape).replaceAll("×", "by")}`;
  });
  const text = recording.line(s).text.split(/\s#\s/)[0].trim();
  const told = recording.called(s);
  return `${told[0].toUpperCase()}${told.slice(1)}, ${call.backward ? "backward" : "forward"}, ${recording.crumbs(s).at(-1)}: ${text}. ${shapes.join(", ")}${
    covered ? ", covered" : ""
  }.`;
}
