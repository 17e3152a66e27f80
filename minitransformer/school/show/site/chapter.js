// A chapter: cells that can be changed and run, and questions that cover what follows until they are answered.
"use strict";

const MOST_KEPT = 20000; // characters of a cell's outputs that the browser keeps; larger ones would leave no room for code

document.addEventListener("DOMContentLoaded", () => {
  const chapter = document.querySelector("article").dataset.chapter;

  // ---- Cells. An output belongs to the code of its cell and of all cells above it: to a state, of which we keep a
  // digest. `shows` is the state of the output that is shown, `ran` the one that Python's names are in.

  const cells = [...document.querySelectorAll(".cell")].map((box, i) => {
    const name = box.dataset.exercise ? `exercise:${box.dataset.exercise}` : `cell:${chapter}:${box.dataset.cell}`;
    const output = box.querySelector(".output");
    const cell = { box, i, ran: null, output, stored: output, kept: `output:${chapter}:${box.dataset.cell}` };
    const button = (text, action) => makeButton(text, action, { "aria-label": `${text} cell ${i + 1}` });
    const run = button("Run", () => runTo(cell));
    const reset = button("Reset", () => cell.editor.set(cell.editor.original));
    cell.editor = edit(box.querySelector("pre.code"), `Code of cell ${i + 1}`, name, () => runTo(cell));
    cell.editor.onchange = () => {
      reset.hidden = cell.editor.area.value === cell.editor.original;
      refresh();
    };
    reset.hidden = cell.editor.area.value === cell.editor.original;
    const ahead = () => python.ahead(["minitransformer.course", "matplotlib.pyplot"]);
    box.addEventListener("focusin", ahead);
    run.addEventListener("pointerenter", ahead);
    cell.old = make("p", { class: "old" }, "Not run since the code changed.");
    const place = make("span", { class: "note" }, `cell ${i + 1}`);
    cell.folded = box.querySelector("details.code");
    if (cell.folded && cell.editor.area.value !== cell.editor.original) cell.folded.open = true;
    cell.time = make("span", { class: "time" });
    const buttons = make("div", { class: "buttons" }, run, reset, place, cell.time);
    (cell.folded ?? box.querySelector(".editor")).after(buttons, cell.old);
    return cell;
  });
  python.restarted = () => cells.forEach((cell) => (cell.ran = null));

  function states(codeOf) {
    let state = "";
    return cells.map((cell) => (state = digest(`${state} ${codeOf(cell.editor)}`)));
  }
  const stateNow = () => states((editor) => editor.area.value);
  const stored = states((editor) => editor.original);

  // Mark the outputs of other code. The notebook's output comes back with the notebook's code.
  function refresh() {
    const now = stateNow();
    for (const cell of cells) {
      if (cell.shows !== now[cell.i] && now[cell.i] === stored[cell.i]) show(cell, cell.stored, stored[cell.i]);
      const old = cell.shows !== now[cell.i];
      cell.old.hidden = !old || !cell.output.hasChildNodes();
      if (old && cell.box.dataset.state !== "running") delete cell.box.dataset.state;
    }
  }

  function show(cell, output, state) {
    cell.output.replaceWith(output);
    cell.output = output;
    cell.shows = state;
  }

  function keepOutput(cell, state, outputs) {
    const text = JSON.stringify({ state, outputs });
    kept.set(cell.kept, state === stored[cell.i] || text.length > MOST_KEPT ? null : text);
  }

  for (const cell of cells) {
    cell.shows = stored[cell.i];
    try {
      const { state, outputs } = JSON.parse(kept.get(cell.kept));
      const own = make("div", { class: "output" });
      for (const output of outputs) showOutput(own, output);
      show(cell, own, state);
    } catch {
      // nothing is kept, or nothing that can be read: the notebook's output stays
    }
  }
  refresh();

  // Run a cell, and first those above it whose code is not what Python has run. Returns whether all ended well.
  async function runTo(cell) {
    for (const each of cells.slice(0, cell.i + 1)) {
      if (each !== cell && each.ran === stateNow()[each.i]) continue;
      const ended = await run(each);
      if (!ended.done) return false;
    }
    return true;
  }

  async function run(cell) {
    const fresh = make("div", { class: "output" });
    const state = stateNow()[cell.i];
    const outputs = [];
    cell.box.dataset.state = "running";
    cell.problem?.remove();
    const request = { code: cell.editor.area.value, number: cell.i + 1 };
    const ended = await python.run(request, (output) => {
      if (!outputs.length) show(cell, fresh, state);
      outputs.push(output);
      showOutput(fresh, output);
    }, `cell ${cell.i + 1} of ${cells.length}`, (seconds) => (cell.time.textContent = `running for ${seconds} s`));
    cell.time.textContent = ended.seconds > 1 ? `ran for ${ended.seconds.toFixed(1)} s` : "";
    if (!ended.problem || outputs.length) show(cell, fresh, state); // else what was shown stays
    if (ended.problem) {
      const again = makeButton("Try again", () => runTo(cell));
      cell.problem = make("p", { class: "error", role: "alert" }, ended.problem, " ", again);
      cell.output.before(cell.problem);
    } else keepOutput(cell, state, outputs);
    if (!ended.done && cell.folded) cell.folded.open = true;
    cell.ran = ended.done ? state : null;
    cell.box.dataset.state = ended.done ? "done" : "failed";
    refresh();
    openAfter(outputs);
    return ended;
  }

  const all = byId("run-all");
  all.hidden = false;
  all.addEventListener("click", async () => {
    const open = cells.filter((cell) => !cell.box.closest("section.part").hidden);
    cells.forEach((cell) => (cell.ran = null));
    const done = !open.length || (await runTo(open[open.length - 1]));
    if (!done || open.length === cells.length) return;
    say(`${open.length ? `Ran up to cell ${open.length}.` : "Nothing ran."} A question covers the rest: answer it, then continue.`);
  });

  // ---- What follows an exercise's check and tells its answer opens when the check says right. ----

  const afters = [...document.querySelectorAll("details.after")];
  function openAfter(outputs) {
    for (const after of afters)
      if (outputs.some((output) => output.data?.["text/plain"]?.startsWith(`${after.dataset.exercise}: right`))) after.open = true;
  }
  for (const after of afters) after.open = Boolean(kept.get(`right:${after.dataset.exercise}`));

  // ---- Questions ----

  const forms = [...document.querySelectorAll("form.predict")];
  const nameOf = (form) => `answer:${chapter}:${form.dataset.question}`;
  const answered = (form) => kept.get(nameOf(form)) !== null;

  function cover() {
    let covered = false;
    for (const part of document.querySelectorAll("section.part")) {
      part.hidden = covered;
      const form = part.querySelector("form.predict");
      if (form) covered ||= !answered(form);
    }
    byId("covered").hidden = !covered;
  }

  function showAll() {
    for (const form of forms) if (!answered(form)) kept.set(nameOf(form), "");
    cover();
  }

  for (const form of forms) {
    form.hidden = false;
    const area = form.querySelector("textarea");
    const verdict = form.querySelector(".verdict");
    const fields = [...form.querySelectorAll("[data-expected]")];
    const boxes = [area, ...fields];
    const names = boxes.map((_, i) => (i ? `${nameOf(form)}:${i}` : nameOf(form)));
    boxes.forEach((box, i) => (box.value = kept.get(names[i]) ?? ""));
    const filled = () => boxes.some((box) => box.value.trim());
    const compare = () => (verdict.textContent = comparison(fields, area.value));
    if (answered(form) && filled()) compare();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!filled() && event.submitter?.value !== "skip") {
        verdict.textContent = "Write something first, however short: a wrong prediction teaches the most.";
        (fields[0] ?? area).focus();
        return;
      }
      boxes.forEach((box, i) => kept.set(names[i], box.value));
      compare();
      cover();
    });
  }
  byId("show-all").addEventListener("click", showAll);
  cover();

  function jump() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.closest("[hidden]")) return;
    showAll(); // whoever follows a link to a covered place wants to read it
    target.scrollIntoView();
  }
  addEventListener("hashchange", jump);
  jump();
});

// FNV-1a: a short name for a text. Two texts of one chapter practically never share a name.
function digest(text) {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193);
  return (sum >>> 0).toString(36);
}
