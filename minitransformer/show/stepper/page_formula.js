// The view of formulas as papers write them, in place of the code. The browser remembers it.

const PAPER = "minitransformer.paper";

// Whether the view is on; with an argument, switch it.
function paperView(on) {
  if (on === undefined) return document.body.classList.contains("paper");
  try {
    localStorage.setItem(PAPER, String(on));
  } catch {
    /* a page without a place to remember it */
  }
  return document.body.classList.toggle("paper", on);
}

function rememberedPaper() {
  try {
    return localStorage.getItem(PAPER) === "true";
  } catch {
    return false;
  }
}

// Papers leave out heads of inner functions, loops, and lines that only give an array another name.
function isShown(recording, s) {
  return recording.steps[s].shown && (!paperView() || recording.line(s).paper !== null);
}

function formulaOf(line) {
  const formula = (paperView() && line.paper) || line.math;
  return formula ? wrapping(formula) : make("code", {}, line.text);
}

// A formula that continues in the next line where it is too wide: browsers do not break <math>, so it is made of
// several. A line ends after a comma or before a sign; in brackets only if they are wider than a line.
function wrapping([, , ...parts]) {
  const outer = broken(parts, false).map((piece) => {
    const inner = broken(piece, true).map((part) => math(["math", { displaystyle: "true" }, ...part]));
    return inner.length === 1 ? inner[0] : make("span", { class: "piece" }, ...inner);
  });
  return make("span", { class: "math" }, ...outer);
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

// What a figure is called: its name in the code or, as papers have it, its symbol and then that name.
function captionOf(recording, name, place) {
  const inCode = recording.data.names[name] || ["mi", { mathvariant: "normal" }, name];
  const symbol = paperView() && place && recording.steps[place[0]].bound[place[1]].symbol;
  const outer = document.createElementNS(MATHML, "math");
  outer.append(math(typeof symbol === "number" ? recording.data.symbols[symbol] : inCode));
  const differs = typeof symbol === "number" && outer.textContent !== name;
  return differs ? [outer, make("code", { class: "in-code" }, name)] : [outer];
}

// In place of the code: the formulas of this function, forward and backward, each a link to its step.
function showFormulas(recording, s) {
  const { forward } = recording.calls[recording.steps[s].call];
  const rows = new Map(); // by line: its step, of several the last until now
  recording.steps.forEach(({ call, line }, other) => {
    const own = recording.calls[call].forward === forward && isShown(recording, other);
    if (own && (other <= s || !rows.has(line))) rows.set(line, other);
  });
  const links = [...rows.values()].map((other) => {
    const backward = recording.backward(other) ? " backward" : "";
    const here = other === s ? { "aria-current": "step" } : {};
    return make(
      "a",
      { class: `line${backward}${other === s ? " lit" : ""}`, href: `#step=${other}`, ...here },
      make("span", { class: "no" }, String(other)),
      formulaOf(recording.line(other)),
    );
  });
  const box = byId("listing");
  box.replaceChildren(...links);
  links.forEach((link) => fit(link.lastChild));
  scrollToLine();
}

// A formula with a part that is wider than its place is written smaller.
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

// A text in parts; a word of the glossary says what it means when one points at it, where it occurs first.
function explained(text, known) {
  const words = Object.keys(data.glossary);
  const parts = text.split(new RegExp(`(?<!\\w)((?:${words.join("|")})s?)(?!\\w)`, "i"));
  return parts.map((part, i) => {
    const word = i % 2 && words.find((word) => new RegExp(`^${word}s?$`, "i").test(part));
    if (!word || known.has(word)) return part;
    known.add(word);
    return make("abbr", { title: data.glossary[word] }, part);
  });
}

function nameIn(recording, s, name) {
  const own = recording.steps[s].bound.findIndex((bound) => bound.name === name);
  const place = own < 0 ? recording.lookup(`${recording.label(s)}.${name}`, s) : [s, own];
  return paperView() && place ? captionOf(recording, name, place)[0] : make("code", {}, name);
}
