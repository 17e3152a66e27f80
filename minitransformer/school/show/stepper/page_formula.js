// Formulas as papers write them, and the view of the code behind them, which the browser remembers.

const wide = matchMedia("(min-width: 1600px)"); // there the code stands beside the formulas

// Whether the code is shown; with an argument, switch it.
function codeView(on) {
  if (on === undefined) return document.body.classList.contains("with-code");
  return document.body.classList.toggle("with-code", on);
}

// As the reader last chose; else beside the formulas where there is room.
const wantedCode = () =>
  JSON.parse(kept.get("code")) ?? (wide.matches && !document.documentElement.classList.contains("large"));

// Whether names are shown as papers write them.
const inSymbols = () => !codeView() || wide.matches;

function formulaOf(line) {
  const formula = line.paper || line.math;
  return formula ? wrapping(formula) : make("code", {}, line.text);
}

// A formula that continues on the next line where it is too wide: browsers do not break <math>, so it consists of
// several. A line ends after a comma or before a sign; in brackets only if they are wider than a line.
function wrapping([, , ...parts]) {
  const all = equations(parts).map((equation) => lines(equation));
  return make("span", { class: "math" }, ...(all.length === 1 ? all[0] : all.map((each) => make("span", { class: "piece" }, ...each))));
}

function lines(parts) {
  return broken(parts, false).map((piece) => {
    const inner = broken(piece, true).map((part) => math(["math", { displaystyle: "true" }, ...part]));
    return inner.length === 1 ? inner[0] : make("span", { class: "piece" }, ...inner);
  });
}

// dX = dY Wᵀ, dW = Xᵀ dY: each stays together. Of Q, K = ..., which has one sign of equality, the whole.
function equations(parts) {
  const is = (part, sign) => part[0] === "mo" && part[2] === sign;
  const pieces = [[]];
  for (const part of parts) {
    pieces.at(-1).push(part);
    if (is(part, ",") && pieces.at(-1).some((other) => is(other, "="))) pieces.push([]);
  }
  return pieces.every((piece) => piece.some((part) => is(part, "="))) ? pieces : [parts];
}

function broken(parts, inBrackets) {
  const pieces = [[]];
  for (const part of withoutRows(parts, inBrackets)) {
    const sign = part[0] === "mo" && part[1].form !== "prefix" ? part[2] : "";
    if (sign && "=←+−⊙".includes(sign) && pieces.at(-1).length)
      pieces.push([["mo", { ...part[1], form: "infix" }, sign]]);
    else pieces.at(-1).push(part);
    if (sign === ",") pieces.push([]);
  }
  return pieces.filter((piece) => piece.length);
}

// The parts of rows, of those in brackets only if these need not grow.
function withoutRows(parts, inBrackets) {
  const opens = (part) => {
    const [tag, , [kind, , sign] = []] = part;
    return tag === "mrow" && (kind !== "mo" || (inBrackets && sign === "(" && !isTall(part)));
  };
  return parts.flatMap((part) => (opens(part) ? withoutRows(part.slice(2), inBrackets) : [part]));
}

const isTall = (part) =>
  Array.isArray(part) && (["mfrac", "munder", "msqrt", "mtable"].includes(part[0]) || part.some(isTall));

const isParameter = ({ name }) => /^d?(weight|bias)$/.test(name); // of a linear map

// Whether a weight, or its gradient, is shown at a step of another function, whose formula has a name of its own for it.
// The linear layer, which calls the linear map, writes W as well.
function isElsewhere(recording, place, at) {
  if (!place || at === undefined || !isParameter(recording.steps[place[0]].bound[place[1]])) return false;
  const [own, here] = [place[0], at].map((s) => recording.call(s).forward);
  return own !== here && !/^[Ll]inear(#|$)/.test(recording.calls[here].label);
}

// What a figure is called at step `at`: its symbol, as papers have it, and its name in the code where that differs.
function captionOf(recording, name, place, at = recording.at) {
  const inCode = recording.data.names[name] || ["mi", { mathvariant: "normal" }, name];
  const bound = place ? recording.steps[place[0]].bound[place[1]] : {};
  const symbol = isElsewhere(recording, place, at) ? (bound.outside ?? bound.symbol) : bound.symbol;
  const outer = document.createElementNS(MATHML, "math");
  outer.append(math(typeof symbol === "number" ? recording.data.symbols[symbol] : inCode));
  const differs = typeof symbol === "number" && outer.textContent.toLowerCase() !== name.replaceAll("_", "\u00a0").toLowerCase();
  return differs && codeView() ? [outer, make("code", { class: "in-code" }, name)] : [outer];
}

// What the caller calls an argument, X = S, a weight, W = W_Q, or a result, Y → A, where it has another symbol for it.
function outsideOf(recording, place) {
  const bound = place ? recording.steps[place[0]].bound[place[1]] : {};
  const { outside, origin, symbol: own } = bound;
  if (outside === undefined || outside === own || isElsewhere(recording, place, recording.at)) return [];
  const symbol = math(["math", {}, recording.data.symbols[outside]]);
  return [make("span", { class: "outside" }, origin === undefined && !isParameter(bound) ? " → " : " = ", symbol)];
}

// What a value is called in this view: by its symbol, or where code stands alone by its name in the code.
function nameOf(recording, place) {
  const { name } = recording.steps[place[0]].bound[place[1]];
  return inSymbols() ? captionOf(recording, name, place)[0] : make("code", {}, name);
}

// A text in which a value stands as its place in backticks, with what it is called.
const named = (recording, text) =>
  text.split("`").map((part, i) => (i % 2 ? nameOf(recording, part.split(",").map(Number)) : part));

// The formulas of this function, forward and backward, each a link to its step.
function showFormulas(recording, s) {
  const { forward } = recording.call(s);
  const rows = new Map(); // by line: its step, of several the last until now
  const inside = recording.steps.filter(({ call }) => recording.calls[call].forward === forward);
  const all = !inside.some(({ stop }, i) => stop && i > 0); // of a function that is one step elsewhere, every line
  const isFormula = ({ shown, stop, bound }, line) =>
    line.paper && !line.entry && (stop || (shown && (all || bound.some(({ origin }) => origin !== undefined))));
  recording.steps.forEach((step, other) => {
    const { call, line } = step;
    const own = recording.calls[call].forward === forward && isFormula(step, recording.line(other));
    if (own && (other <= s || !rows.has(line))) rows.set(line, other);
  });
  const links = [...rows.values()].map((other) => {
    const backward = recording.backward(other) ? " backward" : "";
    const wrong = recording.line(other).wrong ? " wrong" : "";
    const here = other === s ? { "aria-current": "step" } : {};
    const formula = formulaOf(recording.line(other));
    const told = { "aria-label": `${recording.called(other)}: ${formula.textContent}`, href: `#step=${other}`, ...here };
    return make("a", { class: `line${backward}${wrong}${other === s ? " lit" : ""}`, ...told }, formula);
  });
  const box = byId("formulas");
  box.classList.remove("stacked");
  box.replaceChildren(...links);
  box.style.setProperty("--size", 1);
  links.forEach((link) => (link.lastChild.style.fontSize = ""));
  box.classList.toggle("stacked", box.scrollWidth > box.clientWidth); // too wide for two columns
  fillFormulas();
  links.forEach((link) => fit(link.lastChild));
}

// A formula with a part that is wider than its space is written smaller.
function fit(box) {
  box.style.fontSize = "";
  for (let i = 0; i < 3 && box.scrollWidth > box.clientWidth; i++) {
    const size = (parseFloat(getComputedStyle(box).fontSize) * box.clientWidth) / box.scrollWidth;
    box.style.fontSize = `${Math.max(size * 0.98, 7)}px`;
  }
}

function fitFormulas() {
  [byId("formula"), ...document.querySelectorAll("a.line > .math")].forEach(fit);
}

// What happens at this step, and why. Names stand in backticks; papers have symbols for them. Of a wrong line: what the
// right one does. covered: the number to predict is not told.
function sentenceOf(recording, s, line, covered = false) {
  const { sentence } = recording.data.lines[recording.steps[s].line];
  let told = line.wrong ? `Without the mistake: ${sentence}` : line.sentence;
  if (covered) told = told.replaceAll(/ = −?\d+\.\d+/g, " = ?");
  const parts = told.split("`");
  const stop = (i) => (i ? parts[i].match(/^[.,;:]*/)[0] : ""); // stays in the line of the symbol before it
  const known = new Set();
  return parts.flatMap((part, i) =>
    i % 2
      ? [make("span", { class: "name" }, nameIn(recording, s, part), stop(i + 1))]
      : explained(part.slice(stop(i).length), known),
  );
}

// A text in parts; a word of the glossary says what it means when one points at it or taps it, where it occurs first.
function explained(text, known) {
  const words = Object.keys(data.glossary);
  const parts = text.split(new RegExp(`(?<!\\w)(√?(?:${words.join("|")})s?)(?!\\w)`, "i"));
  return parts.flatMap((part, i) => {
    const word = i % 2 && words.find((word) => new RegExp(`^√?${word}s?$`, "i").test(part));
    if (!word || known.has(word)) return withIndices(part);
    known.add(word);
    const told = make("span", { class: "meaning", hidden: true }, ` (${data.glossary[word].replace(/\.$/, "")})`);
    return make("span", {}, make("button", { type: "button", class: "word", title: data.glossary[word] }, ...withIndices(part)), told);
  });
}

// x_i with its index lowered, and longer names of the code as words.
function withIndices(text) {
  const parts = text.split(/(?<!\w)((?:1\/)?√?[A-Za-zγβ]{1,3}_(?:\{[^}]+\}|[A-Za-z]{1,2}(?!\w)))/);
  return parts.map((part, i) => {
    if (i % 2 === 0) return part.replace(/\w*_\w*/g, (name) => name.replaceAll("_", " ").trim());
    const [, root, base, index] = part.replace(/[{}]/g, "").match(/^((?:1\/)?√?)(.+)_(.+)$/);
    const letter = base === "sum" ? "∑" : make("i", {}, base);
    return make("span", { class: "name piece" }, root, letter, make("sub", {}, index));
  });
}

function nameIn(recording, s, name) {
  const own = recording.steps[s].bound.findIndex((bound) => bound.name === name);
  const place = own < 0 ? recording.lookup(`${recording.label(s)}.${name}`, s) : [s, own];
  if (place) return nameOf(recording, place);
  return inSymbols() ? captionOf(recording, name, null)[0] : make("code", {}, name);
}
