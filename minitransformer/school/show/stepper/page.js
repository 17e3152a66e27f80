// The page: what it shows now, and everything that changes it.

const PACES = { slow: 2, medium: 1, fast: 0.4 }; // how long Play stays at a step, times what reading takes

function start() {
  const recording = new Recording(data);
  const map = new CallMap(recording);
  const motion = new Motion(recording);
  const state = { step: 0, predict: false, revealed: true, asked: null, all: false, address: 0, arrays: null };
  Object.assign(state, { moved: false, playing: 0, seenEnd: false });
  state.red = new Set(); // the steps whose numbers the mistake changes
  state.known = new Set(); // the mistakes that were found or chosen
  state.marks = new Map(); // by step: whether the prediction was right

  const isStop = (s) => state.all || recording.steps[s].stop || s === state.step || recording.line(s).wrong || recording.isBent(s);
  const shown = () => [...recording.steps.keys()].filter(isStop);
  const next = (s, by) => {
    const steps = shown();
    return by > 0 ? (steps.find((other) => other > s) ?? s) : (steps.findLast((other) => other < s) ?? s);
  };
  const hints = () => (recording.secret ? new Set() : state.red); // a secret mistake is to be found in the numbers
  const covered = () => state.predict && !state.revealed && isComputed(state.step);
  const isComputed = (s) => recording.steps[s].bound.length > 0 && !recording.line(s).entry; // what is given, none foretells

  function draw() {
    const s = (recording.at = state.step);
    byId("intro").hidden = state.moved || data.told;
    document.body.classList.toggle("entry", recording.line(s).entry === true);
    map.draw(byId("map"), s, hints(), goTo); // before the formulas, which take the width that it leaves
    fillMap();
    showCode(recording, s, covered());
    const question = covered() ? questionAt(recording, s) : null;
    showResult(recording, s, covered() && (question?.kind === "shape" ? "shape" : true));
    byId("reveal-row").hidden = !covered();
    for (const id of ["question", "guess", "answer"]) byId(id).hidden = question === null;
    byId("question").replaceChildren(...named(recording, question?.text ?? ""));
    byId("guess").placeholder = question?.form ?? "";
    byId("mark").hidden = byId("mark").dataset.step !== String(s);
    showOperands(recording, s);
    showChecks(recording, s, covered());
    showOthers(recording, s);
    showOrigin(recording, s, state.asked, goTo);
    fitNumbers(recording, s);
    hintBelow();
    const steps = shown();
    byId("slider").max = steps.length - 1;
    byId("slider").value = steps.findLastIndex((other) => other <= s);
    byId("slider").setAttribute("aria-valuetext", spoken(recording, s, false));
    const stops = [...recording.steps.keys()].filter((other) => recording.steps[other].stop);
    byId("shown").textContent = `${stops.filter((other) => other <= s).length} of ${stops.length}`;
    document.body.classList.toggle("by-line", state.all || !recording.steps[s].stop);
    byId("counter").textContent = `${s} / ${recording.steps.length - 1}`;
    for (const [by, ids] of [[-1, ["first", "previous"]], [1, ["last", "next"]]])
      for (const id of ids) byId(id).setAttribute("aria-disabled", String(next(s, by) === s)); // and keeps the focus
    byId("live").textContent = spoken(recording, s, covered());
  }

  function goTo(s, { keepHash = false } = {}) {
    if (!recording.steps[s]) return;
    Object.assign(state, { step: s, asked: null, revealed: s <= state.step || !state.predict });
    state.seenEnd ||= s === shown().at(-1);
    byId("guess").value = "";
    byId("guess").setAttribute("aria-invalid", "false");
    byId("mistake").querySelector(".reply")?.replaceChildren(); // it was about another line
    draw();
    byId("now").scrollTop = 0;
    if (!covered()) motion.step(s);
    clearTimeout(state.address);
    if (!keepHash) state.address = setTimeout(writeAddress, 100); // browsers refuse too many changes in a row
  }

  // The edited numbers for the address: name.cell:number.
  function edits() {
    const changed = (state.arrays ?? []).flatMap((numbers, i) => {
      const [s, b] = inputs.places[i];
      const before = recording.recorded(s, b).data;
      const cells = [...numbers.keys()].filter((cell) => numbers[cell] !== before[cell]);
      return cells.map((cell) => `${recording.steps[s].bound[b].name}.${cell}:${numbers[cell]}`);
    });
    return changed.join();
  }

  function writeAddress() {
    clearTimeout(state.address);
    try {
      history.replaceState(null, "", addressOf(recording, state.step, edits()));
    } catch {
      /* inside another page, which has its own address */
    }
  }

  function ask(s, b, flat) {
    const { asked } = state;
    const same = asked && asked.s === s && asked.b === b && asked.flat === flat;
    state.asked = same ? null : { s, b, flat };
    showOrigin(recording, state.step, state.asked, goTo);
    fitMatrices();
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
    byId("mark").replaceChildren(verdict, ...named(recording, `${reason}. `), make("span", {}, `${scoreOf(state.marks)}.`));
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
      if (on && state.step === shown()[0]) move(shown().find((s) => questionAt(recording, s)) ?? state.step);
      draw();
    },
    edit: (on) => editor(on),
    code: (on) => {
      kept.set("code", String(codeView(on)));
      draw();
    },
    play: (on) => play(on),
    motion: (on) => motion.turn(on),
    maps: (on) => document.body.classList.toggle("no-map", !on),
  };
  const redraw = () => {
    setPressed("code", codeView(wantedCode()));
    draw();
    writeAddress();
  };
  addTools(ownSwitches, redraw);
  if (telephone.matches) toggle("maps");
  wide.addEventListener("change", draw);
  new ResizeObserver(scrollToLine).observe(byId("listing")); // fonts and banners come after the first drawing

  // Mistakes.
  fillGame(recording, state.known);
  byId("mistakes").addEventListener("click", () => {
    byId("first-right").textContent = state.seenEnd
      ? "Surprise me puts one mistake into the code, and you find its line. Or break a line yourself."
      : "Go through the correct pass first, to the last step: then you will know what to expect.";
    fillGame(recording, state.known);
    byId("right").hidden = !recording.bug;
    byId("game").showModal();
  });
  byId("game").addEventListener("click", ({ target }) => {
    const pressed = target.closest("#surprise, #right, [data-bug]");
    if (!pressed) return;
    byId("game").close();
    const named = playable().find(({ name }) => name === pressed.dataset.bug) ?? null;
    if (pressed.id === "surprise") surprise();
    else switchBug(named);
  });
  byId("mistake").addEventListener("click", ({ target }) => {
    if (target.id === "correct") switchBug(null);
    if (target.id === "give-up") switchBug(recording.bug);
    if (target.id !== "found") return;
    if (isCulprit(recording, state.step, shown())) {
      switchBug(recording.bug);
      byId("mistake").prepend(make("strong", { class: "found" }, "✓ Found. "));
    } else {
      const red = recording.results(state.step).some((place) => recording.wrong(...place)?.size);
      const before = [...state.red].some((other) => other < state.step);
      byId("mistake").querySelector(".reply").textContent = red
        ? "Not here: this line is right, but what it reads is already wrong. "
        : `Not here: ${before ? "red numbers began before this line" : "nothing is red yet"}. `;
    }
  });

  function surprise() {
    const found = playable().filter((bug) => bug !== recording.bug && (!editing() || inputs.makes(bug)));
    if (found.length) switchBug(found[Math.floor(Math.random() * found.length)], true);
  }

  function switchBug(bug, secret = false) {
    if (bug && editing() && !inputs.makes(bug)) {
      editor(setPressed("edit", false));
      reset();
    }
    state.moved ||= bug !== null;
    recording.switchBug(bug, secret);
    if (bug && !secret) state.known.add(bug.name);
    byId("mistake").dataset.name = bug?.name ?? "";
    state.asked = null;
    recomputeAll();
    if (!secret && state.red.size) goTo(landing(recording, state.red)); // a secret one is looked for from here on
    if (!secret) byId("result").querySelector(".cell.wrong")?.scrollIntoView({ block: "nearest" });
    writeAddress();
  }

  // Play: time to read what a step says, then the next one.
  function play(on) {
    clearTimeout(state.playing);
    state.playing = 0;
    byId("play").textContent = on ? "❚❚ Stop" : "▶ Play";
    if (!on) return setPressed("play", false);
    const time = PACES[byId("pace").value] * Math.min(12_000, 3000 + 40 * byId("sentence").textContent.length);
    state.playing = setTimeout(() => {
      const there = next(state.step, 1);
      if (covered() || there === state.step) return play(false);
      move(there);
      play(!covered());
    }, time);
  }

  byId("pace").value = kept.get("pace") in PACES ? kept.get("pace") : "medium";
  byId("pace").addEventListener("change", () => {
    kept.set("pace", byId("pace").value);
    if (state.playing) play(true); // the new pace counts at once
  });
  const placePace = () => (telephone.matches ? byId("motion") : byId("play")).after(byId("pace"));
  telephone.addEventListener("change", placePace);
  placePace();

  // A step that the reader asked for.
  function move(s) {
    state.moved = true;
    goTo(s);
  }

  // Edited inputs.
  const inputs = editable(recording);

  const editing = () => !byId("editor").hidden || state.arrays !== null;

  // Open or close the fields. Closed, the edits still count, and a line above the numbers says so.
  function editor(on) {
    byId("editor").hidden = !on;
    document.body.classList.toggle("editing", on);
    byId("copied").hidden = true;
    if (on && recording.bug && !inputs.makes(recording.bug)) switchBug(null);
    if (on && !state.arrays) fillFields();
    draw();
  }

  function fillFields() {
    const fixed = inputs.fixed.map((i) => nameOf(recording, inputs.places[i]).textContent);
    byId("fixed").textContent = inputs.refused ?? `${fixed.join(", ")}: as recorded.`;
    byId("fixed").hidden = fixed.length === 0 && !inputs.refused;
    byId("reset").hidden = byId("copy").hidden = inputs.refused !== null;
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
    for (const i of inputs.fixed) {
      figures[i].hidden = true;
      figures[i].querySelectorAll("input").forEach((field) => (field.disabled = true));
    }
  }

  // The inputs as they were recorded.
  function reset() {
    state.arrays = null;
    byId("edited").hidden = byId("copied").hidden = true;
    fillFields();
    recomputeAll();
    writeAddress();
  }

  function recomputeAll() {
    recording.edited = state.arrays && inputs.run(state.arrays, recording.bug);
    state.red = recording.wrongSteps();
    showMistake(recording, state.red, goTo);
    draw();
  }

  byId("inputs").addEventListener("change", (event) => {
    const label = (field) => field.getAttribute("aria-label").replace(/ ([\d, ]+)$/, "[$1]"); // Q[0, 1]
    const read = (field) => numberOrRefusal(field.closest("figure").dataset.name, field.value, label(field));
    event.target.setAttribute("aria-invalid", String(typeof read(event.target) === "string"));
    const bad = byId("inputs").querySelector("[aria-invalid=true]");
    byId("edited").hidden = false;
    byId("copied").hidden = true;
    const before = state.arrays ?? inputs.places.map((place) => recording.recorded(...place).data);
    const kept = (field, was) => (typeof read(field) === "string" ? was : read(field));
    const now = [...byId("inputs").querySelectorAll("figure")].map((figure, i) =>
      Float64Array.from(figure.querySelectorAll("input"), (field, flat) => kept(field, before[i][flat])),
    );
    if (!bad || now.some((numbers, i) => numbers.some((x, flat) => x !== before[i][flat]))) state.arrays = now;
    const told = bad
      ? `${read(bad)} Until then it counts as it was; all other edits are in the numbers below.`
      : "Inputs edited: this page recomputes every number" + (data.verified ? " and the finite differences." : ".");
    byId("edited").replaceChildren(`${told} `, make("button", { type: "button" }, "Reset"));
    recomputeAll();
    writeAddress();
  });
  byId("reset").addEventListener("click", reset);
  byId("edited").addEventListener("click", ({ target }) => target.matches("button") && reset());
  byId("copy").addEventListener("click", async () => {
    writeAddress();
    const told = byId("copied");
    const address = new URL(addressOf(recording, state.step, edits()), location.href).href;
    told.hidden = false;
    try {
      await navigator.clipboard.writeText(address);
      told.textContent = "Copied: this address opens the page with these inputs.";
    } catch {
      const field = make("input", { type: "text", readonly: true, "aria-label": "Address of this edit" });
      field.value = address;
      told.replaceChildren("Copy this address: ", field); // a page within another may not write to the clipboard
      field.select();
    }
  });
  makeDraggable(byId("inputs"));

  // Steps. Over: the next one that is not inside a function that this one calls. Out: nor in this function.
  const beyond = (inside) => {
    const { call } = recording.steps[state.step];
    const later = (s) => s > state.step && !recording.within(recording.steps[s].call, call);
    const here = (s) => !inside && s > state.step && recording.steps[s].call === call;
    return shown().find((s) => later(s) || here(s)) ?? state.step;
  };
  const user = (s) => {
    if (state.playing) play(false);
    move(s);
  };
  const moves = {
    first: () => shown()[0],
    last: () => shown().at(-1),
    next: () => next(state.step, 1),
    previous: () => next(state.step, -1),
    over: () => beyond(false),
    out: () => beyond(true),
  };
  for (const [id, target] of Object.entries(moves)) byId(id).addEventListener("click", () => user(target()));
  byId("slider").addEventListener("input", () => user(shown()[Number(byId("slider").value)]));
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
    byId("links").replaceChildren(...stepTree(recording, shown(), state.step, hints()));
    byId("steps").showModal();
    byId("links").querySelector("[aria-current]")?.focus();
  });
  byId("links").addEventListener("click", (event) => {
    if (event.target.closest("a")) byId("steps").close();
  });
  const follow = ({ step, bug, edits: wanted }) => {
    if (wanted.length && !inputs.refused && edits() !== wanted.map(([name, cell, x]) => `${name}.${cell}:${x}`).join())
      edit(wanted);
    if (bug && bug !== recording.bug) switchBug(bug);
    if (step === null) return;
    state.moved = true;
    goTo(step, { keepHash: true });
    if (location.hash !== addressOf(recording, step, edits())) writeAddress();
  };
  const edit = (wanted) => {
    if (state.arrays) reset();
    editor(setPressed("edit", true));
    const figures = [...byId("inputs").querySelectorAll("figure")];
    for (const [name, cell, x] of wanted) {
      const field = figures.find((figure) => figure.dataset.name === name)?.querySelectorAll("input")[cell];
      if (!field) continue;
      field.value = x;
      field.dispatchEvent(new Event("change", { bubbles: true }));
    }
  };
  document.addEventListener("go", ({ detail }) => goTo(detail));
  addEventListener("hashchange", () => follow(askedFor(location.hash)));

  byId("sentence").addEventListener("click", ({ target }) => {
    if (target.matches(".word")) target.nextSibling.hidden = !target.nextSibling.hidden;
  });

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
    if (/^[\d.+\u2212-]$/.test(event.key) && byId("guess").offsetParent) return byId("guess").focus(); // where the key then goes
    const onControl = event.target.matches("button, summary, a, input");
    const keys = {
      ArrowRight: moves.next,
      ArrowLeft: moves.previous,
      Home: moves.first,
      End: moves.last,
    };
    const letters = {
      p: "predict", f: "code", l: "play", h: "heat", a: "motion", m: "maps", o: "over", u: "out", t: "large", d: "theme", "?": "help",
    };
    if (keys[event.key]) user(keys[event.key]());
    else if (letters[event.key.toLowerCase()]) byId(letters[event.key.toLowerCase()]).click();
    else if (event.key === " " && !onControl && covered()) reveal();
    else if (event.key === "Escape" && state.asked) ask(state.asked.s, state.asked.b, state.asked.flat);
    else return;
    event.preventDefault();
  });

  const words = Object.entries(data.glossary).flatMap(([word, meaning]) => [make("dt", {}, word), make("dd", {}, meaning)]);
  byId("notes").before(make("h2", {}, "Words"), make("dl", { id: "words" }, ...words));
  const names = () => data.dictionary.flatMap(([name, symbol], i, { length }) => [i ? " " : " In code and chapters ", math(["math", {}, symbol]), ` is ${name}${i + 1 < length ? "," : "."}`]);
  byId("notes").before(make("p", {}, ...names()));
  const complete = data.arrays.some(({ summary }) => summary !== undefined)
    ? `Arrays of up to ${data.limits.array} numbers are complete; larger ones show a corner and the range.`
    : "All arrays are complete.";
  byId("notes").textContent =
    `${complete} Sums are written out for arrays of up to ${data.limits.expanded} numbers. ` +
    "The address names the step, and the mistake if one is switched on: copy it to link to what you see.";
  const fitAll = () => {
    fillMap();
    fillFormulas();
    fitFormulas();
    fitNumbers(recording, state.step);
    hintBelow();
  };
  document.querySelector(".line-side").addEventListener("scroll", hintBelow, { capture: true });
  addEventListener("resize", fitAll);
  document.fonts.addEventListener("loadingdone", () => (measured.clear(), fitAll())); // it may come after the first drawing
  byId("now").addEventListener("toggle", fitMatrices, { capture: true }); // what unfolds has a width only then
  addEventListener("beforeprint", () => handout(recording, scoreOf(state.marks)));
  matchMedia("print").addEventListener("change", (event) => {
    if (event.matches) handout(recording, scoreOf(state.marks));
  });
  setPressed("code", codeView(wantedCode()));
  const touch = telephone.matches || matchMedia("(pointer: coarse)").matches;
  const press = touch ? "Press Step" : "Press Step, or the key →";
  const see = `${press}; ${touch ? "tap" : "click"} a number to see its sum.`;
  const passes =
    `${data.title} with real numbers: first forward, to the output; then backward, to how a loss changes with each ` +
    "number. The formula says what a step does, the coloured box has its numbers. ";
  byId("intro").replaceChildren(...(telephone.matches ? [see] : [passes + see, ...names()]));
  motion.turn(setPressed("motion", !matchMedia("(prefers-reduced-motion: reduce)").matches));
  setAll(false);
  byId("title").append(make("span", { class: "about" }, ...withIndices(data.about)));
  byId("told").hidden = !data.told;
  byId("told").textContent = data.told;
  const asked = askedFor(location.hash);
  goTo(data.start ?? shown()[0], { keepHash: true });
  follow(asked);
}

start();
