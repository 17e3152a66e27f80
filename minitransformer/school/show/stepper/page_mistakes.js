// Mistakes as a game: one line of the code is wrong, its numbers are red, find it. Or one chosen by its line. Where a
// mistake leads, what the banner says of it, and the lines that it changed.

// Those that show: what changes no number here, or stops with an error, is left out.
const playable = () => data.bugs.filter((bug) => bug.numbers?.length);

// The steps whose lines a mistake changed.
const wrongLines = (bug) => bug.lines.filter(([, line]) => data.lines[line].wrong).map(([s]) => s);

// The lines with their mistakes: the classics first, then in the order of the code. What goes wrong is told of known
// mistakes alone, those that were found or chosen.
function fillGame(recording, known) {
  const first = (bug) => wrongLines(bug)[0] ?? Infinity;
  const list = (bugs) => {
    const byLine = Map.groupBy(bugs, (bug) => data.steps[first(bug)]?.line ?? bug.in);
    return make("ol", {}, ...[...byLine].map(([line, these]) => groupOf(line, first(these[0]), these)));
  };
  const groupOf = (line, s, bugs) => {
    const told = Number.isFinite(s) ? [formulaOf(data.lines[line]), recording.crumbs(s).at(-1)] : [line.replaceAll("_", " ")];
    const buttons = bugs.map((bug, i) => {
      const text = bugs.length > 1 ? `Break it, way ${i + 1}` : "Break it";
      const button = make("button", { type: "button", "data-bug": bug.name }, known.has(bug.name) ? "✓ Again" : text);
      return make("span", {}, button, ...(known.has(bug.name) ? [" ", ...withIndices(bug.mistake)] : []));
    });
    return make("li", {}, make("div", { class: "told" }, ...told), make("div", { class: "ways" }, ...buttons));
  };
  const [classics, others] = [true, false].map((is) => playable().filter(({ classic }) => (classic !== undefined) === is));
  classics.sort((a, b) => a.classic - b.classic);
  others.sort((a, b) => first(a) - first(b));
  const part = (heading, bugs) => (bugs.length ? [make("h3", {}, heading), list(bugs)] : []);
  byId("bugs").replaceChildren(...part("Classics", classics), ...part(classics.length ? "Other lines" : "Lines", others));
  byId("tally").textContent = `${known.size} of ${playable().length} mistakes seen`;
  byId("mistakes").hidden = playable().length === 0;
}

// Whether step s is the changed line, or stands for a call with that line in it; or the first one shown after it, whose
// formula has what such a line prepares.
function isCulprit(recording, s, shown) {
  const { bug, steps, calls } = recording;
  const inside = (c) => (steps[s].into === undefined ? false : c !== null && (c === steps[s].into || inside(calls[c].parent)));
  const lines = wrongLines(bug);
  if (lines.some((other) => shown.find((step) => step >= other) === s)) return true;
  if (lines.length === 0) return s === Math.min(...recording.wrongSteps());
  return lines.some((other) => steps[other].line === steps[s].line || inside(steps[other].call));
}

// The address of what is shown: #step=12, or #step=12&mistake=softmax-no-sum&edit=q.0:1.5.
function addressOf(recording, step, edits) {
  const bug = recording.bug && !recording.secret ? `&mistake=${encodeURIComponent(recording.bug.name)}` : "";
  const { classList, dataset } = document.documentElement;
  const looks = `${classList.contains("large") ? "&large" : ""}${dataset.theme === "dark" ? "&dark" : ""}`;
  return `#step=${step}${bug}${edits ? `&edit=${edits}` : ""}${looks}`;
}

// What an address asks for; null for what it does not name, or what this page does not have.
function askedFor(hash) {
  const told = new URLSearchParams(hash.slice(1));
  const bug = playable().find((each) => each.name === told.get("mistake")) ?? null;
  const step = /^\d+$/.test(told.get("step")) && data.steps[told.get("step")] ? Number(told.get("step")) : null;
  const edits = [...(told.get("edit") ?? "").matchAll(/(\w+)\.(\d+):(-?[\d.e-]+)/g)].map(([, ...edit]) => edit);
  return { step, bug, edits };
}

// The step to show: the first changed line with a number that differs; else the first such number.
function landing(recording, red) {
  const steps = [...red].sort((a, b) => a - b);
  return steps.find((s) => recording.line(s).wrong) ?? steps[0];
}

// What the banner says: the mistake, how many numbers it changes, and what finite differences say about it. For a
// secret one: what to do.
function showMistake(recording, red, goTo) {
  const { bug, secret } = recording;
  const box = byId("mistake");
  box.hidden = !bug;
  if (!bug) return;
  if (secret) {
    const told = "One line is wrong. Step through: find the line where red numbers begin. ";
    const press = (id, text) => make("button", { type: "button", id }, text);
    return box.replaceChildren(make("strong", {}, "✗ "), told, make("span", { class: "reply", role: "status" }), press("found", "It is this line"), " ", press("give-up", "Show it"));
  }
  const off = make("button", { type: "button", id: "correct" }, "Correct code");
  box.replaceChildren(make("strong", {}, "✗ Mistake "), ...withIndices(bug.mistake), make("span", {}, verdict(recording, bug)), " ", off);
  const first = Math.min(...red);
  if (red.size === 0 || first === landing(recording, red)) return;
  off.before("The first of them is at ", linkTo(first, recording.called(first), goTo), ". ");
}

function verdict(recording, bug) {
  const wrong = recording.places.filter((place) => recording.wrong(...place)?.size);
  const cells = wrong.reduce((count, place) => count + recording.wrong(...place).size, 0);
  const changed = ` It changes ${cells} numbers.`;
  const isGradient = ([s, b]) => recording.steps[s].bound[b].gradient;
  if (!recording.outputIsWrong() && !wrong.some(isGradient))
    return `${changed} The output and all gradients are the same with these inputs.`;
  if (!data.verified) return changed;
  if (bug.by !== "gradients")
    return `${changed} Forward and backward are wrong together, so finite differences cannot detect it.`;
  const compared = wrong.map((place) => [recording.value(...place), recording.numerical(...place)]);
  const worst = compared.filter(([, numerical]) => numerical).map((pair) => Math.max(...gaps(...pair)));
  if (worst.length) return `${changed} Largest gap to the finite difference: ${readable(Math.max(...worst))}.`;
  if (recording.outputIsWrong())
    return `${changed} It changes the output, too, so the finite differences of the correct code say nothing here.`;
  return `${changed} None of them has a finite difference here.`;
}

// The lines of the wrong code, and between them the right ones that it lacks: [text, "same", "old" or "new"].
function mergedLines(right, wrong) {
  const common = Array.from({ length: right.length + 1 }, () => new Array(wrong.length + 1).fill(0));
  for (let i = right.length - 1; i >= 0; i--)
    for (let j = wrong.length - 1; j >= 0; j--)
      common[i][j] =
        right[i] === wrong[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < right.length || j < wrong.length) {
    if (i < right.length && j < wrong.length && right[i] === wrong[j]) {
      lines.push([wrong[j++], "same"]);
      i++;
    } else if (i < right.length && (j === wrong.length || common[i + 1][j] >= common[i][j + 1]))
      lines.push([right[i++], "old"]);
    else lines.push([wrong[j++], "new"]);
  }
  return lines;
}
