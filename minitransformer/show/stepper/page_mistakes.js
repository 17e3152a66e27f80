// Mistakes: the menu, where a mistake leads, what the banner says of it, and the lines that it changed.

// Why a mistake cannot be chosen, or "".
const whyNot = (bug) =>
  bug.refused !== undefined ? " (raises an error)" : bug.numbers.length ? "" : " (no number here shows it)";

// Below the name of each function its mistakes; those that cannot be chosen come last.
function fillMenu(chooser) {
  chooser.append(make("option", { value: "" }, "none"));
  const option = (bug) =>
    make("option", { value: bug.name, title: bug.name, disabled: whyNot(bug) !== "" }, bug.mistake + whyNot(bug));
  for (const [name, bugs] of Map.groupBy(data.bugs, (bug) => bug.in)) {
    const inOrder = [...bugs.filter((bug) => !whyNot(bug)), ...bugs.filter(whyNot)];
    chooser.append(make("optgroup", { label: name }, ...inOrder.map(option)));
  }
  chooser.closest("label").hidden = data.bugs.length === 0;
}

// The address of what is shown: #step=12, or #step=12&mistake=softmax-no-sum.
const addressOf = (step, bug) => `#step=${step}${bug ? `&mistake=${encodeURIComponent(bug.name)}` : ""}`;

// What an address asks for; null for what it does not name, or what this page does not have.
function askedFor(hash) {
  const told = new URLSearchParams(hash.slice(1));
  const bug = data.bugs.find((each) => each.name === told.get("mistake") && !whyNot(each)) ?? null;
  const step = /^\d+$/.test(told.get("step")) && data.steps[told.get("step")] ? Number(told.get("step")) : null;
  return { step, bug };
}

// The step to show: the first changed line with a number that differs; else the first such number.
function landing(recording, red) {
  const steps = [...red].sort((a, b) => a - b);
  return steps.find((s) => recording.line(s).wrong) ?? steps[0];
}

// What the banner says: the mistake, how many numbers it changes, and what finite differences tell of it.
function showMistake(recording, red, goTo) {
  const { bug } = recording;
  const box = byId("mistake");
  box.hidden = !bug;
  if (!bug) return;
  box.replaceChildren(make("strong", {}, "✗ Mistake "), bug.mistake, make("span", {}, verdict(recording, bug)));
  const first = Math.min(...red);
  if (red.size === 0 || first === landing(recording, red)) return;
  const link = make("a", { href: `#step=${first}` }, `step ${first}`);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    goTo(first);
  });
  box.append(" The first of them is at ", link, ".");
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
    return `${changed} It changes the output, too, so the finite differences of the right code say nothing here.`;
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
