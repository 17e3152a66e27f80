// Mistakes as a game: one line of the code is wrong, its numbers are red, find it. Or one chosen by its line. Where a
// mistake leads, what the banner says of it, and the lines that it changed.

// Those that show: what changes no number here, or stops with an error, is left out.
const playable = () => data.bugs.filter((bug) => bug.numbers?.length);

// The steps whose lines a mistake changed.
const wrongLines = (bug) => bug.lines.filter(([, line]) => data.lines[line].wrong).map(([s]) => s);

// By line, in the order of the code: the mistakes that can be made in it.
function fillGame(recording) {
  const byLine = Map.groupBy(playable(), (bug) => data.steps[wrongLines(bug)[0]]?.line ?? bug.in);
  const groups = [...byLine].map(([line, bugs]) => {
    const s = wrongLines(bugs[0])[0];
    const told = s === undefined ? [line.replaceAll("_", " ")] : [formulaOf(data.lines[line]), ` ${recording.crumbs(s).at(-1)}`];
    const buttons = bugs.map((bug) => make("button", { type: "button", "data-bug": bug.name }, bug.mistake));
    return make("details", {}, make("summary", {}, ...told), make("div", {}, ...buttons));
  });
  byId("bugs").replaceChildren(...groups);
  byId("mistakes").hidden = playable().length === 0;
}

// Whether step s is the changed line, or stands for a call with that line in it.
function isCulprit(recording, s) {
  const { bug, steps, calls } = recording;
  const inside = (c) => (steps[s].into === undefined ? false : c !== null && (c === steps[s].into || inside(calls[c].parent)));
  const lines = wrongLines(bug);
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
    const told = "One line is wrong. The red numbers follow from it: go back to the line where they begin. ";
    const press = (id, text) => make("button", { type: "button", id }, text);
    return box.replaceChildren(make("strong", {}, "✗ "), told, press("found", "It is this line"), " ", press("give-up", "Show it"));
  }
  const off = make("button", { type: "button", id: "correct" }, "Correct code");
  box.replaceChildren(make("strong", {}, "✗ Mistake "), bug.mistake, make("span", {}, verdict(recording, bug)), " ", off);
  const first = Math.min(...red);
  if (red.size === 0 || first === landing(recording, red)) return;
  const link = make("a", { href: `#step=${first}` }, recording.called(first));
  link.addEventListener("click", (event) => {
    event.preventDefault();
    goTo(first);
  });
  off.before("The first of them is at ", link, ". ");
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
