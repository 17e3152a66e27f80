// An editor for Python: a text area over the same text in colours. Enter keeps the indentation; Tab leaves the editor.
"use strict";

const TOKENS =
  /(#.*)|((?:[rbfu]|rb|br|fr|rf)?(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|\b(and|as|assert|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b|(\b\d[\w.]*)/gi;
const KINDS = ["comment", "string", "keyword", "number"];

function coloured(code) {
  const out = document.createDocumentFragment();
  let end = 0;
  for (const match of code.matchAll(TOKENS)) {
    out.append(code.slice(end, match.index));
    out.append(make("span", { class: KINDS[match.slice(1).findIndex((group) => group !== undefined)] }, match[0]));
    end = match.index + match[0].length;
  }
  out.append(code.slice(end), "\n"); // a last empty line has a height too
  return out;
}

const editors = new Map(); // of this page, by the names under which their texts are kept

// Turn <pre> into an editor. name: under which its text is kept, unless it is the original one. paint: colours the text.
function edit(pre, label, name, onRun, paint = coloured) {
  const original = pre.textContent;
  const area = make("textarea", { "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off", autocorrect: "off", rows: "1" });
  const shown = make("pre", { "aria-hidden": "true" });
  const box = make("div", { class: "editor" }, shown, area);
  const editor = { area, original, name, onchange: () => {} };
  const draw = () => shown.replaceChildren(paint(area.value));
  editor.set = (text) => {
    area.value = text;
    draw();
    keep();
  };
  const keep = () => {
    if (!kept.set(name, area.value === original ? null : area.value))
      say("This browser keeps nothing: save your work as a file.");
    editor.onchange();
  };
  area.value = kept.get(name) ?? original;
  area.addEventListener("input", () => {
    draw();
    keep();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) {
      event.preventDefault();
      onRun();
      return;
    }
    const line = area.value.slice(0, area.selectionStart).split("\n").pop();
    const indent = line.match(/^ */)[0] + (/:\s*(#.*)?$/.test(line) ? "    " : "");
    if (!indent) return;
    event.preventDefault();
    area.setRangeText(`\n${indent}`, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
  });
  draw();
  pre.replaceWith(box);
  editors.set(name, editor);
  return editor;
}

// ---- Work as a file: a notebook with one cell for each exercise, which `minitransformer grade` takes. ----

function workNames() {
  const names = [];
  for (let i = 0; i < localStorage.length; i++) {
    const key = localStorage.key(i);
    if (key.startsWith("minitransformer:exercise:")) names.push(key.slice("minitransformer:exercise:".length));
  }
  return names.sort();
}

function cellOf(source, exercise) {
  if (exercise?.startsWith("derive_")) return { cell_type: "markdown", metadata: { exercise }, source: `${exercise}\n\n${source}` };
  return { cell_type: "code", execution_count: null, metadata: exercise ? { exercise } : {}, outputs: [], source };
}

// The student's name as the file's name, which the marks show: letters, digits and a few signs.
function plainName() {
  const name = (kept.get("name") ?? "").normalize("NFC").replace(/[^\p{L}\p{N}.@_+-]+/gu, "-");
  return name.slice(0, 60).replace(/^[.-]+|[.-]+$/g, "");
}

function saveWork() {
  const names = workNames();
  if (!names.length) {
    tell("There is no work to hand in yet: change the code of an exercise that has a check.");
    return;
  }
  const cells = [cellOf("import numpy as np"), ...names.map((name) => cellOf(kept.get(`exercise:${name}`), name))];
  const metadata = { kernelspec: { display_name: "Python 3", language: "python", name: "python3" } };
  const text = JSON.stringify({ cells, metadata, nbformat: 4, nbformat_minor: 4 }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const file = `${plainName() || "minitransformer-work"}.ipynb`;
  make("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  const then = plainName() ? "hand in this file." : "write your name above and save again before you hand it in.";
  tell(
    `Saved ${names.join(", ")} as ${file}: ${then} It holds the exercises with a check. ` +
      "Tasks in other cells and predictions are for you alone; they stay in this browser.",
  );
}

async function openWork(file) {
  const codes = [];
  try {
    for (const cell of JSON.parse(await file.text()).cells) {
      const { exercise } = cell.metadata ?? {};
      if (typeof exercise === "string" && /^\w+$/.test(exercise)) {
        const text = [cell.source].flat().join("");
        codes.push([exercise, cell.cell_type === "markdown" ? text.replace(`${exercise}\n\n`, "") : text]);
      }
    }
  } catch {
    codes.length = 0;
  }
  if (!codes.length) {
    tell("This file holds no work from this site.");
    return;
  }
  const names = codes.map(([name]) => name).join(", ");
  replaceCode(codes, `${codes.length} exercise${codes.length > 1 ? "s" : ""} opened: ${names}. Press Check to see whether the code is right.`);
}

// Give exercises other code, null for the given one, and say so. Undo brings back what was replaced, repeatedly.
function replaceCode(codes, text) {
  const before = codes.map(([name]) => [name, editors.get(`exercise:${name}`)?.area.value ?? kept.get(`exercise:${name}`)]);
  for (const [name, code] of codes) {
    const editor = editors.get(`exercise:${name}`);
    if (editor) editor.set(code ?? editor.original);
    else if (!kept.set(`exercise:${name}`, code)) text = "This browser keeps nothing: open the file on the page of an exercise.";
  }
  document.dispatchEvent(new Event("work"));
  const undo = makeButton("Undo", () => replaceCode(before, "Undone."));
  tell(text, undo);
  undo.focus(); // the button that was pressed may be gone
}

// Say something about the work, below the buttons that save it.
function tell(...parts) {
  byId("told").replaceChildren(...parts.flatMap((part) => [part, " "]));
}

whenShown(() => {
  const save = document.querySelector("button.save");
  if (save) {
    const name = make("input", { autocomplete: "username", maxlength: "60", value: kept.get("name") ?? "" });
    name.addEventListener("input", () => kept.set("name", name.value.trim() || null));
    save.before(make("label", { class: "name" }, "Your user name or email ", name));
    save.hidden = false;
    save.addEventListener("click", saveWork);
    save.closest(".buttons").after(make("p", { id: "told", class: "note", role: "status" }));
  }
  const input = document.querySelector("input.open");
  if (input) {
    input.closest("label").hidden = false;
    input.addEventListener("change", async () => {
      if (input.files.length) await openWork(input.files[0]);
      input.value = ""; // so that the same file can be opened again
    });
  }
});
