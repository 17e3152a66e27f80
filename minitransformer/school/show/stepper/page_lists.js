// Every step as a link, every step on paper, and the arrow keys inside a matrix.

// The arrow keys inside a matrix; Escape leaves it.
function moveInMatrix(event) {
  const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (event.key === "Escape") event.target.blur();
  else if (!by) return false;
  else {
    const row = event.target.closest("tr");
    const cells = (line) => [...(line?.querySelectorAll(".cell") ?? [])].filter((cell) => cell.offsetParent); // not folded
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
      const { parent, backward } = recording.calls[c];
      const open = steps.length <= 100 || recording.within(recording.steps[current].call, c);
      lists.set(c, make("ol"));
      const name = recording.data.map.boxes[recording.data.map.of[c]].name || "Add & Norm";
      const details = make("details", open ? { open: "" } : {}, make("summary", {}, name), lists.get(c));
      listOf(parent).append(make("li", { class: backward ? "backward" : "forward" }, details));
    }
    return lists.get(c);
  };
  for (const s of steps) {
    const { call, bound } = recording.steps[s];
    const names = bound.flatMap(({ name }, b) => [...(b ? [", "] : []), captionOf(recording, name, [s, b], s)[0]]);
    const here = s === current ? { "aria-current": "step" } : {};
    const number = make("span", { class: "label" }, recording.called(s).split(" ")[1]);
    const link = make("a", { href: `#step=${s}`, ...here }, number, make("span", {}, ...(names.length ? names : [recording.line(s).text.split("\n")[0]])));
    listOf(call).append(make("li", red.has(s) ? { class: "red" } : {}, link));
  }
  return [...lists.get(null).children];
}

// For printing: every step with its formula and its numbers, as they are shown now, and the score of the predictions.
function handout(recording, score) {
  const shown = recording.at;
  const rows = recording.steps
    .map((step, s) => [step, s])
    .filter(([step]) => step.stop)
    .map(([step, s]) => {
      const line = recording.line((recording.at = s));
      const figures = recording
        .results(s)
        .filter((place) => isNumeric(recording.recorded(...place)))
        .filter(
          (place) => (recording.recorded(...place).data?.length ?? 0) <= 64 || recording.recorded(...place).summary,
        )
        .map((place) => placeFigure(recording, place, "printed"));
      const columns = Math.max(1, ...recording.results(s).map((place) => recording.recorded(...place).shape.at(-1) ?? 1));
      const formula = formulaOf(line);
      const wide = columns > 5 || formula.textContent.length > 50;
      const kind = [...(recording.backward(s) ? ["backward"] : []), ...(wide ? ["wide"] : [])].join(" ");
      return make(
        "article",
        { class: kind, style: `--columns: ${columns}` },
        make("h3", {}, `${recording.called(s).split(" ")[1]} · ${recording.crumbs(s).at(-1)}${recording.backward(s) ? " · backward" : ""}`),
        formula,
        make("p", {}, ...sentenceOf(recording, s, line)),
        make("div", { class: "matrices" }, ...figures),
        ...checkLines(recording, s),
      );
    });
  recording.at = shown;
  byId("handout").replaceChildren(make("h1", {}, recording.data.name), make("p", {}, score), ...rows);
}
