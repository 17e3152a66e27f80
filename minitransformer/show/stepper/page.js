// The page: what is shown at the moment, and everything that changes it.

function start() {
  const recording = new Recording(data);
  const state = { step: 0, predict: false, revealed: true, asked: null, all: false, address: 0, arrays: null };

  const shown = () => recording.steps.map((_, s) => s).filter((s) => state.all || recording.steps[s].shown);
  const next = (s, by) => {
    const steps = shown();
    return by > 0 ? (steps.find((other) => other > s) ?? s) : (steps.findLast((other) => other < s) ?? s);
  };
  const covered = () => state.predict && !state.revealed;

  function draw() {
    const s = state.step;
    showCode(recording, s);
    showResult(recording, s, covered());
    byId("reveal-row").hidden = !covered();
    showOperands(recording, s);
    showOthers(recording, s);
    showOrigin(recording, s, state.asked, goTo);
    const steps = shown();
    byId("slider").max = steps.length - 1;
    byId("slider").value = steps.findLastIndex((other) => other <= s);
    byId("slider").setAttribute("aria-valuetext", spoken(recording, s, false));
    byId("counter").textContent = `${s} / ${recording.steps.length - 1}`;
    byId("first").disabled = byId("previous").disabled = next(s, -1) === s;
    byId("last").disabled = byId("next").disabled = next(s, 1) === s;
    byId("live").textContent = spoken(recording, s, covered());
  }

  function goTo(s, { keepHash = false } = {}) {
    if (!recording.steps[s]) return;
    Object.assign(state, { step: s, asked: null, revealed: s <= state.step || !state.predict });
    if (!recording.steps[s].shown && !state.all) setAll(true);
    draw();
    byId("now").scrollTop = 0;
    clearTimeout(state.address);
    if (!keepHash) state.address = setTimeout(writeAddress, 100); // browsers refuse too many changes in a row
  }

  function writeAddress() {
    try {
      history.replaceState(null, "", `#step=${state.step}`);
    } catch {
      /* inside another page, which has its own address */
    }
  }

  function ask(s, b, flat) {
    const { asked } = state;
    const same = asked && asked.s === s && asked.b === b && asked.flat === flat;
    state.asked = same ? null : { s, b, flat };
    showOrigin(recording, state.step, state.asked, goTo);
    if (!same) byId("live").textContent = byId("sum-text").textContent;
  }

  function reveal() {
    if (!covered()) return;
    state.revealed = true;
    draw();
  }

  function setAll(on) {
    state.all = on;
    byId("all").checked = on;
    const steps = shown();
    const border = steps.findIndex((s) => recording.backward(s));
    byId("mark-forward").style.flexGrow = border < 0 ? 1 : border;
    byId("mark-backward").style.flexGrow = border < 0 ? 0 : steps.length - border;
    byId("links").replaceChildren();
  }

  const ownSwitches = {
    heat: (on) => document.body.classList.toggle("heat", on),
    predict: (on) => {
      Object.assign(state, { predict: on, revealed: !on, asked: null });
      draw();
    },
    edit: (on) => editor(on),
  };
  addTools(ownSwitches, draw);

  // Mistakes.
  const chooser = byId("bug");
  chooser.append(make("option", { value: "" }, "none"));
  for (const name of new Set(data.bugs.map((bug) => bug.in))) {
    const group = make("optgroup", { label: name });
    data.bugs.forEach((bug, i) => {
      if (bug.in !== name) return;
      const refused = bug.refused !== undefined;
      group.append(make("option", { value: i, disabled: refused }, refused ? `${bug.name} (raises an error)` : bug.name));
    });
    chooser.append(group);
  }
  chooser.closest("label").hidden = data.bugs.length === 0;
  chooser.addEventListener("change", () => switchBug(chooser.value === "" ? null : data.bugs[chooser.value]));

  function switchBug(bug) {
    if (bug && !byId("editor").hidden && !MISTAKES[bug.name]) editor(setPressed("edit", false));
    recording.switchBug(bug);
    chooser.value = bug ? data.bugs.indexOf(bug) : "";
    state.asked = null;
    recomputeAll();
  }

  function showMistake() {
    const { bug } = recording;
    byId("mistake").hidden = !bug;
    if (bug)
      byId("mistake").replaceChildren(make("strong", {}, "✗ Mistake "), bug.mistake, make("span", {}, verdict(bug)));
  }

  function verdict(bug) {
    const cells = recording.places.reduce((count, place) => count + (recording.wrong(...place)?.size ?? 0), 0);
    const changed = ` It changes ${cells} numbers.`;
    if (!data.verified) return changed;
    if (bug.by !== "gradients")
      return `${changed} Forward and backward are wrong together, so finite differences cannot detect it.`;
    let worst = 0;
    for (const [s, b] of recording.places) {
      if (!recording.wrong(s, b)) continue;
      const numerical = recording.numerical(s, b);
      if (numerical) worst = gaps(recording.value(s, b), numerical).reduce((x, y) => Math.max(x, y), worst);
    }
    return `${changed} Largest gap to the finite difference: ${readable(worst)}.`;
  }

  // Edited inputs.
  const inputs = editable(recording);
  byId("edit").hidden = inputs === null;

  function editor(on) {
    byId("editor").hidden = !on;
    state.arrays = null;
    byId("edited").hidden = true;
    if (on) {
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
    }
    recomputeAll();
  }

  function recomputeAll() {
    recording.edited = state.arrays && inputs.run(state.arrays, recording.bug);
    showMistake();
    draw();
  }

  byId("inputs").addEventListener("change", (event) => {
    const number = Number(event.target.value.replace("\u2212", "-"));
    const bad = event.target.value.trim() === "" || !Number.isFinite(number);
    event.target.setAttribute("aria-invalid", String(bad));
    if (byId("inputs").querySelector("[aria-invalid=true]")) return;
    state.arrays = [...byId("inputs").querySelectorAll("figure")].map((figure) =>
      Float64Array.from(figure.querySelectorAll("input"), (field) => Number(field.value.replace("\u2212", "-"))),
    );
    byId("edited").textContent =
      "Inputs edited: this page recomputes every number" + (data.verified ? " and the finite differences." : ".");
    byId("edited").hidden = false;
    recomputeAll();
  });
  byId("reset").addEventListener("click", () => editor(true));

  // Steps.
  const moves = {
    first: () => shown()[0],
    last: () => shown().at(-1),
    next: () => next(state.step, 1),
    previous: () => next(state.step, -1),
  };
  for (const [id, target] of Object.entries(moves)) byId(id).addEventListener("click", () => goTo(target()));
  byId("slider").addEventListener("input", () => goTo(shown()[Number(byId("slider").value)]));
  byId("all").addEventListener("change", () => {
    setAll(byId("all").checked);
    goTo(shown().findLast((s) => s <= state.step) ?? shown()[0]);
  });
  byId("reveal").addEventListener("click", reveal);
  byId("others-box").addEventListener("toggle", () => {
    showOthers(recording, state.step);
  });
  byId("list").addEventListener("click", () => {
    if (!byId("links").children.length) byId("links").append(...stepLinks(recording, shown()));
    byId("links")
      .querySelectorAll("a")
      .forEach((link) => {
        if (link.hash === `#step=${state.step}`) link.setAttribute("aria-current", "step");
        else link.removeAttribute("aria-current");
      });
    byId("steps").showModal();
    byId("links").querySelector("[aria-current]")?.focus();
  });
  byId("links").addEventListener("click", (event) => {
    if (event.target.closest("a")) byId("steps").close();
  });
  const fromHash = () => Number((location.hash.match(/^#step=(\d+)$/) || [])[1]);
  addEventListener("hashchange", () => {
    if (!Number.isNaN(fromHash())) goTo(fromHash(), { keepHash: true });
  });

  // Cells: a click shows where a number comes from; the arrow keys still change the step.
  document.addEventListener("mousedown", (event) => {
    if (event.target.closest(".cell")) event.preventDefault();
  });
  byId("now").addEventListener("click", (event) => {
    const found = event.target.closest(".cell, .covered");
    const figure = found && found.closest("[data-place]");
    if (!figure) return;
    if (figure.classList.contains("result") && covered()) reveal();
    else if (found.dataset.flat) ask(...figure.dataset.place.split(",").map(Number), Number(found.dataset.flat));
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input:not([type=checkbox]):not([type=range]), select")) return;
    if (event.target.matches(".cell") && moveInMatrix(event)) return;
    const onControl = event.target.matches("button, summary, a, input");
    const keys = {
      ArrowRight: moves.next,
      ArrowLeft: moves.previous,
      Home: moves.first,
      End: moves.last,
    };
    const letters = { p: "predict", h: "heat", t: "large", d: "theme", "?": "help" };
    if (keys[event.key]) goTo(keys[event.key]());
    else if (letters[event.key.toLowerCase()]) byId(letters[event.key.toLowerCase()]).click();
    else if (event.key === " " && !onControl && covered()) reveal();
    else if (event.key === "Escape" && state.asked) ask(state.asked.s, state.asked.b, state.asked.flat);
    else return;
    event.preventDefault();
  });

  byId("notes").textContent =
    `Arrays of up to ${data.limits.array} numbers are complete; larger ones show a corner and the range. Sums are ` +
    `written out for arrays of up to ${data.limits.expanded} numbers. To link to a step, add #step=12 to the address.`;
  addEventListener("beforeprint", () => handout(recording));
  matchMedia("print").addEventListener("change", (event) => {
    if (event.matches) handout(recording);
  });
  setAll(false);
  goTo(Number.isNaN(fromHash()) ? shown()[0] : fromHash(), { keepHash: true });
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

function stepLinks(recording, steps) {
  return steps.map((s) =>
    make(
      "li",
      { class: recording.backward(s) ? "backward" : "forward", value: s },
      make(
        "a",
        { href: `#step=${s}` },
        make("span", { class: "label" }, `${s} · ${recording.label(s)}`),
        make(
          "code",
          {},
          recording.steps[s].bound.map((bound) => bound.name).join(", ") || recording.line(s).text.split("\n")[0],
        ),
      ),
    ),
  );
}

// For printing: every step with its formula and its numbers, as they are shown now.
function handout(recording) {
  const rows = recording.steps
    .map((step, s) => [step, s])
    .filter(([step]) => step.shown)
    .map(([step, s]) => {
      const line = recording.line(s);
      const figures = step.bound
        .map((_, b) => [s, b])
        .filter((place) => isNumeric(recording.recorded(...place)))
        .filter(
          (place) => (recording.recorded(...place).data?.length ?? 0) <= 64 || recording.recorded(...place).summary,
        )
        .map((place) => placeFigure(recording, place, "printed"));
      return make(
        "article",
        { class: recording.backward(s) ? "backward" : "" },
        make("h3", {}, `${s} · ${recording.label(s)}${recording.backward(s) ? " · backward" : ""}`),
        line.entry || !line.math ? make("code", {}, line.text) : math(line.math),
        make("div", { class: "matrices" }, ...figures),
      );
    });
  byId("handout").replaceChildren(make("h1", {}, recording.data.name), ...rows);
}

start();
