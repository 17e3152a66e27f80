// The page: what is shown at the moment, and everything that changes it.

function start() {
  const recording = new Recording(data);
  const map = new CallMap(recording);
  const motion = new Motion(recording);
  const state = { step: 0, predict: false, revealed: true, asked: null, all: false, address: 0, arrays: null };
  state.red = new Set(); // the steps whose numbers the mistake changes
  state.marks = new Map(); // by step: whether the prediction was right

  const shown = () => recording.steps.map((_, s) => s).filter((s) => state.all || isShown(recording, s));
  const next = (s, by) => {
    const steps = shown();
    return by > 0 ? (steps.find((other) => other > s) ?? s) : (steps.findLast((other) => other < s) ?? s);
  };
  const covered = () => state.predict && !state.revealed && recording.steps[state.step].bound.length > 0;

  function draw() {
    const s = state.step;
    showCode(recording, s, covered());
    map.draw(byId("map"), s, state.red, goTo);
    const question = covered() ? questionAt(recording, s) : null;
    showResult(recording, s, covered() && (question?.kind === "shape" ? "shape" : true));
    byId("reveal-row").hidden = !covered();
    for (const id of ["question", "guess", "answer"]) byId(id).hidden = question === null;
    byId("question").textContent = question?.text ?? "";
    byId("guess").placeholder = question?.form ?? "";
    byId("mark").hidden = byId("mark").dataset.step !== String(s);
    showOperands(recording, s);
    showChecks(recording, s, covered());
    showOthers(recording, s);
    showOrigin(recording, s, state.asked, goTo);
    const steps = shown();
    byId("slider").max = steps.length - 1;
    byId("slider").value = steps.findLastIndex((other) => other <= s);
    byId("slider").setAttribute("aria-valuetext", spoken(recording, s, false));
    const soFar = steps.filter((other) => other <= s).length;
    byId("shown").textContent = `${soFar} of ${steps.length}`;
    byId("counter").textContent = `${s} / ${recording.steps.length - 1}`;
    for (const [by, ids] of [[-1, ["first", "previous"]], [1, ["last", "next"]]])
      for (const id of ids) byId(id).setAttribute("aria-disabled", String(next(s, by) === s)); // and keeps the focus
    byId("live").textContent = spoken(recording, s, covered());
  }

  function goTo(s, { keepHash = false } = {}) {
    if (!recording.steps[s]) return;
    Object.assign(state, { step: s, asked: null, revealed: s <= state.step || !state.predict });
    if (!recording.steps[s].shown && !state.all) setAll(true);
    byId("guess").value = "";
    byId("guess").setAttribute("aria-invalid", "false");
    draw();
    byId("now").scrollTop = 0;
    if (!covered()) motion.step(s);
    clearTimeout(state.address);
    if (!keepHash) state.address = setTimeout(writeAddress, 100); // browsers refuse too many changes in a row
  }

  function writeAddress() {
    clearTimeout(state.address);
    try {
      history.replaceState(null, "", addressOf(state.step, recording.bug));
    } catch {
      /* inside another page, which has its own address */
    }
  }

  function ask(s, b, flat) {
    const { asked } = state;
    const same = asked && asked.s === s && asked.b === b && asked.flat === flat;
    state.asked = same ? null : { s, b, flat };
    showOrigin(recording, state.step, state.asked, goTo);
    if (same) return;
    byId("live").textContent = byId("sum-text").textContent;
    motion.cell([s, b], flat);
  }

  function reveal() {
    if (!covered()) return;
    state.revealed = true;
    draw();
  }

  // Mark the answer, show the numbers, and as the reason the sum that gave the one asked for.
  function answer() {
    const s = state.step;
    const question = questionAt(recording, s);
    const right = question.judge(byId("guess").value);
    byId("guess").setAttribute("aria-invalid", String(right === null));
    byId("mark").dataset.step = s;
    if (right === null) {
      byId("mark").textContent = `Type ${question.wanted}.`;
      byId("mark").hidden = false;
      return;
    }
    if (!state.marks.has(s)) state.marks.set(s, right);
    const reason = question.truth + (right ? "" : (question.typed?.(byId("guess").value) ?? ""));
    const verdict = make("strong", { class: right ? "" : "wrong" }, right ? "✓ Right: " : "✗ Wrong: ");
    byId("mark").replaceChildren(verdict, `${reason}. `, make("span", {}, `${scoreOf(state.marks)}.`));
    byId("guess").blur();
    reveal();
    if (question.kind !== "shape") ask(s, question.b, question.flat);
  }

  function setAll(on) {
    state.all = on;
    byId("all").checked = on;
    const steps = shown();
    const border = steps.findIndex((s) => recording.backward(s));
    byId("mark-forward").style.flexGrow = border < 0 ? 1 : border;
    byId("mark-backward").style.flexGrow = border < 0 ? 0 : steps.length - border;
  }

  const ownSwitches = {
    heat: (on) => document.body.classList.toggle("heat", on),
    predict: (on) => {
      Object.assign(state, { predict: on, revealed: !on, asked: null });
      byId("mark").dataset.step = "";
      draw();
    },
    edit: (on) => editor(on),
    paper: (on) => {
      paperView(on);
      setAll(state.all);
      draw();
    },
    motion: (on) => motion.turn(on),
    maps: (on) => document.body.classList.toggle("no-map", !on),
  };
  addTools(ownSwitches, draw);
  if (telephone.matches) toggle("maps");
  new ResizeObserver(scrollToLine).observe(byId("listing")); // fonts and banners come after the first drawing

  // Mistakes.
  const chooser = byId("bug");
  fillMenu(chooser);
  chooser.addEventListener("change", () => switchBug(data.bugs.find(({ name }) => name === chooser.value) ?? null));

  function switchBug(bug) {
    if (bug && !byId("editor").hidden && !MISTAKES[bug.name]) editor(setPressed("edit", false));
    recording.switchBug(bug);
    chooser.value = bug?.name ?? "";
    state.asked = null;
    recomputeAll();
    if (state.red.size) goTo(landing(recording, state.red));
    byId("result").querySelector(".cell.wrong")?.scrollIntoView({ block: "nearest" });
    writeAddress();
  }

  // Edited inputs.
  const inputs = editable(recording);

  function editor(on) {
    byId("editor").hidden = !on;
    document.body.classList.toggle("editing", on);
    state.arrays = null;
    byId("edited").hidden = true;
    if (on) {
      const fixed = inputs.fixed.map((i) => recording.steps[inputs.places[i][0]].bound[inputs.places[i][1]].name);
      byId("fixed").textContent =
        inputs.refused ?? `To change ${fixed.join(", ")}, record again in Python: this page takes it as it was.`;
      byId("fixed").hidden = fixed.length === 0 && !inputs.refused;
      byId("reset").hidden = inputs.refused !== null;
      if (recording.bug && !MISTAKES[recording.bug.name]) switchBug(null);
      byId("inputs").replaceChildren(
        ...inputs.places.map(([s, b]) =>
          matrixFigure(recording, {
            array: recording.recorded(s, b),
            name: recording.steps[s].bound[b].name,
            kind: "value",
            role: "input",
            place: [s, b],
          }),
        ),
      );
      const figures = byId("inputs").querySelectorAll("figure");
      for (const i of inputs.fixed) figures[i].querySelectorAll("input").forEach((field) => (field.disabled = true));
    }
    recomputeAll();
  }

  function recomputeAll() {
    recording.edited = state.arrays && inputs.run(state.arrays, recording.bug);
    state.red = recording.wrongSteps();
    showMistake(recording, state.red, goTo);
    draw();
  }

  byId("inputs").addEventListener("change", (event) => {
    const nameOf = (field) => field.getAttribute("aria-label").replace(/ (.*)/, "[$1]"); // q[0, 1]
    const read = (field) => numberOrRefusal(nameOf(field), field.value);
    event.target.setAttribute("aria-invalid", String(typeof read(event.target) === "string"));
    const bad = byId("inputs").querySelector("[aria-invalid=true]");
    byId("edited").hidden = false;
    const before = state.arrays ?? inputs.places.map((place) => recording.recorded(...place).data);
    const kept = (field, was) => (typeof read(field) === "string" ? was : read(field));
    const now = [...byId("inputs").querySelectorAll("figure")].map((figure, i) =>
      Float64Array.from(figure.querySelectorAll("input"), (field, flat) => kept(field, before[i][flat])),
    );
    if (!bad || now.some((numbers, i) => numbers.some((x, flat) => x !== before[i][flat]))) state.arrays = now;
    byId("edited").textContent = bad
      ? `${read(bad)} Until then it counts as it was; all other edits are in the numbers below.`
      : "Inputs edited: this page recomputes every number" + (data.verified ? " and the finite differences." : ".");
    recomputeAll();
  });
  byId("reset").addEventListener("click", () => editor(true));
  makeDraggable(byId("inputs"));

  // Steps. Over: the next one that is not inside a function that this one calls. Out: nor in this function.
  const beyond = (inside) => {
    const { call } = recording.steps[state.step];
    const later = (s) => s > state.step && !recording.within(recording.steps[s].call, call);
    const here = (s) => !inside && s > state.step && recording.steps[s].call === call;
    return shown().find((s) => later(s) || here(s)) ?? state.step;
  };
  const moves = {
    first: () => shown()[0],
    last: () => shown().at(-1),
    next: () => next(state.step, 1),
    previous: () => next(state.step, -1),
    over: () => beyond(false),
    out: () => beyond(true),
  };
  for (const [id, target] of Object.entries(moves)) byId(id).addEventListener("click", () => goTo(target()));
  byId("slider").addEventListener("input", () => goTo(shown()[Number(byId("slider").value)]));
  byId("all").addEventListener("change", () => {
    setAll(byId("all").checked);
    goTo(shown().findLast((s) => s <= state.step) ?? shown()[0]);
  });
  byId("reveal").addEventListener("click", reveal);
  byId("reveal-row").addEventListener("submit", (event) => {
    event.preventDefault();
    answer();
  });
  byId("others-box").addEventListener("toggle", () => {
    showOthers(recording, state.step);
  });
  byId("list").addEventListener("click", () => {
    byId("links").replaceChildren(...stepTree(recording, shown(), state.step, state.red));
    byId("steps").showModal();
    byId("links").querySelector("[aria-current]")?.focus();
  });
  byId("links").addEventListener("click", (event) => {
    if (event.target.closest("a")) byId("steps").close();
  });
  const follow = ({ step, bug }) => {
    if (bug && bug !== recording.bug) switchBug(bug);
    if (step === null) return;
    goTo(step, { keepHash: true });
    if (location.hash !== addressOf(step, recording.bug)) writeAddress();
  };
  addEventListener("hashchange", () => follow(askedFor(location.hash)));

  // Cells: a click shows where a number comes from.
  byId("now").addEventListener("click", (event) => {
    const found = event.target.closest(".cell, .covered");
    const figure = found && found.closest("[data-place]");
    if (!figure) return;
    if (figure.classList.contains("result") && covered()) reveal();
    else if (found.dataset.flat) ask(...figure.dataset.place.split(",").map(Number), Number(found.dataset.flat));
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target === byId("guess") && event.key === "Escape") event.target.blur(); // arrows change the step again
    if (event.target.matches("input:not([type=checkbox]):not([type=range]), select")) return;
    if (event.target.matches(".cell") && moveInMatrix(event)) return;
    const onControl = event.target.matches("button, summary, a, input");
    const keys = {
      ArrowRight: moves.next,
      ArrowLeft: moves.previous,
      Home: moves.first,
      End: moves.last,
    };
    const letters = {
      p: "predict", f: "paper", h: "heat", a: "motion", m: "maps", o: "over", u: "out", t: "large", d: "theme", "?": "help",
    };
    if (keys[event.key]) goTo(keys[event.key]());
    else if (letters[event.key.toLowerCase()]) byId(letters[event.key.toLowerCase()]).click();
    else if (event.key === " " && !onControl && covered()) reveal();
    else if (event.key === "Escape" && state.asked) ask(state.asked.s, state.asked.b, state.asked.flat);
    else return;
    event.preventDefault();
  });

  const words = Object.entries(data.glossary).flatMap(([word, meaning]) => [make("dt", {}, word), make("dd", {}, meaning)]);
  byId("notes").before(make("h2", {}, "Words"), make("dl", { id: "words" }, ...words));
  const complete = data.arrays.some(({ summary }) => summary !== undefined)
    ? `Arrays of up to ${data.limits.array} numbers are complete; larger ones show a corner and the range.`
    : "All arrays are complete.";
  byId("notes").textContent =
    `${complete} Sums are written out for arrays of up to ${data.limits.expanded} numbers. ` +
    "The address names the step, and the mistake if one is switched on: copy it to link to what you see.";
  addEventListener("resize", fitFormulas);
  document.fonts.addEventListener("loadingdone", fitFormulas); // the font may come after the first drawing
  addEventListener("beforeprint", () => handout(recording, scoreOf(state.marks)));
  matchMedia("print").addEventListener("change", (event) => {
    if (event.matches) handout(recording, scoreOf(state.marks));
  });
  setPressed("paper", paperView(rememberedPaper()));
  motion.turn(setPressed("motion", !matchMedia("(prefers-reduced-motion: reduce)").matches));
  setAll(false);
  const asked = askedFor(location.hash);
  goTo(shown()[0], { keepHash: true });
  follow(asked);
}

// The arrow keys inside a matrix; Escape leaves it.
function moveInMatrix(event) {
  const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (event.key === "Escape") event.target.blur();
  else if (!by) return false;
  else {
    const row = event.target.closest("tr");
    const cells = (line) => [...(line?.querySelectorAll(".cell") ?? [])];
    const column = cells(row).indexOf(event.target);
    const rows = [...row.parentElement.children];
    const target = cells(rows[rows.indexOf(row) + by[0]])[column + by[1]];
    if (target) {
      event.target.tabIndex = -1;
      target.tabIndex = 0;
      target.focus();
    }
  }
  event.preventDefault();
  return true;
}

// Every step as a link, in the tree of the calls; open is what `current` runs in, and all of a short recording.
// red: the steps to mark.
function stepTree(recording, steps, current, red) {
  const lists = new Map([[null, make("ol")]]); // by call: its steps and the calls that it made, in order
  const listOf = (c) => {
    if (!lists.has(c)) {
      const { label, parent, backward } = recording.calls[c];
      const open = steps.length <= 100 || recording.within(recording.steps[current].call, c);
      lists.set(c, make("ol"));
      const details = make("details", open ? { open: "" } : {}, make("summary", {}, label), lists.get(c));
      listOf(parent).append(make("li", { class: backward ? "backward" : "forward" }, details));
    }
    return lists.get(c);
  };
  for (const s of steps) {
    const { call, bound } = recording.steps[s];
    const names = bound.map(({ name }) => name).join(", ") || recording.line(s).text.split("\n")[0];
    const here = s === current ? { "aria-current": "step" } : {};
    const number = make("span", { class: "label" }, String(s));
    const link = make("a", { href: `#step=${s}`, ...here }, number, make("code", {}, names));
    listOf(call).append(make("li", red.has(s) ? { class: "red" } : {}, link));
  }
  return [...lists.get(null).children];
}

// For printing: every step with its formula and its numbers, as they are shown now, and the score of the predictions.
function handout(recording, score) {
  const rows = recording.steps
    .map((step, s) => [step, s])
    .filter(([, s]) => isShown(recording, s))
    .map(([step, s]) => {
      const line = recording.line(s);
      const figures = recording
        .results(s)
        .filter((place) => isNumeric(recording.recorded(...place)))
        .filter(
          (place) => (recording.recorded(...place).data?.length ?? 0) <= 64 || recording.recorded(...place).summary,
        )
        .map((place) => placeFigure(recording, place, "printed"));
      const columns = Math.max(1, ...recording.results(s).map((place) => recording.recorded(...place).shape.at(-1) ?? 1));
      const formula = line.entry ? make("code", {}, line.text) : formulaOf(line);
      const wide = columns > 5 || formula.textContent.length > 50;
      const kind = [...(recording.backward(s) ? ["backward"] : []), ...(wide ? ["wide"] : [])].join(" ");
      return make(
        "article",
        { class: kind, style: `--columns: ${columns}` },
        make("h3", {}, `${s} · ${recording.label(s)}${recording.backward(s) ? " · backward" : ""}`),
        formula,
        make("p", {}, ...sentenceOf(recording, s, line)),
        make("div", { class: "matrices" }, ...figures),
        ...checkLines(recording, s),
      );
    });
  byId("handout").replaceChildren(make("h1", {}, recording.data.name), make("p", {}, score), ...rows);
}

start();
