// Sizes: what is shown is as large as its place allows, and all in sight if it can be.

const roomy = matchMedia("(min-width: 60rem)"); // there nothing but its place scrolls
const isLarge = () => document.documentElement.classList.contains("large");
const LARGE = 1.375; // large text, in units of plain text

// What was measured for what is shown, as long as the window stays as it is.
const measured = new Map();
const windowKey = () => [innerWidth, innerHeight, document.documentElement.className, document.body.className].join();

// The map may be drawn larger, too, but leaves the width to the numbers.
function fillMap() {
  const [map, levels] = [byId("map"), byId("map").querySelector(".levels")];
  const key = `map ${levels.textContent} ${windowKey()}`;
  const one = !roomy.matches || document.body.classList.contains("editing");
  const most = innerWidth * (levels.children.length === 1 ? 0.27 : 0.22);
  const stacks = isLarge() && !one && levels.children.length > 1;
  const fits = ([zoom, stacked]) => {
    levels.style.zoom = zoom;
    levels.classList.toggle("stacked", stacked);
    const cut = map.scrollHeight > map.clientHeight || map.scrollWidth > map.clientWidth;
    return !cut && levels.getBoundingClientRect().width < most;
  };
  const beside = [1.75, 1.7, 1.45, 1.2].map((zoom) => [zoom, false]);
  const tried = [...(stacks ? [1.2, 1, 0.9].map((zoom) => [zoom, true]) : []), ...beside];
  if (!measured.has(key)) measured.set(key, (!one && tried.find(fits)) || [1, false]);
  const [zoom, stacked] = measured.get(key);
  levels.style.zoom = zoom;
  levels.classList.toggle("stacked", stacked);
}

// How the numbers of a step may be shown, the best first. zoom: how large, in units of plain text; pairs: with the value
// beside each gradient; tight: in narrow columns; rounded: to two decimals; less: parameters' gradients on demand. Large text is never below plain text.
function layouts() {
  const own = isLarge() ? LARGE : 1;
  const of = (how, zooms) => zooms.map((zoom) => ({ zoom, tight: true, ...how }));
  const below = isLarge() ? [1.3, 1.2, 1.1, 1] : [0.85, 0.75];
  const loose = { pairs: true, tight: false };
  return [
    ...(isLarge()
      ? [3.4, 2.8, 2.3, 2, 1.7, 1.5, own, ...below].flatMap((zoom) => [loose, { pairs: true }, {}].flatMap((how) => of(how, [zoom])))
      : [...of(loose, [2.5, 2, 1.7, 1.45, 1.2, 1]), ...of({ pairs: true }, [own, 0.85]), ...of({}, [own, ...below])]),
    ...of({ rounded: true }, [own, ...below]),
    ...(byId("result").querySelector(".more-results") ? of({ rounded: true, less: true }, below) : []),
  ];
}

// Show result and operands in the best layout in which all of them are in sight. Where there is none they scroll, and each
// is written as small as its width demands. Numbers of plain text keep their size within a call: where a step needs a
// smaller one, so have all that come after it.
function fitNumbers(recording, s) {
  const [now, parts] = [byId("now"), [byId("result"), byId("operands")]];
  const figures = parts.flatMap((part) => [...part.querySelectorAll("figure")]);
  const show = ({ zoom, pairs = false, tight = false, rounded = false, less = false }) => {
    for (const part of parts) part.style.zoom = isLarge() ? zoom / LARGE : zoom;
    now.classList.toggle("bare", !pairs);
    for (const name of ["tight", "dense"]) now.classList.toggle(name, tight);
    now.classList.toggle("rounded", rounded);
    now.classList.toggle("less", less);
    figures.forEach((figure) => round(figure, rounded));
  };
  const stacked = ([first, second]) => second && second.offsetTop !== first.offsetTop; // the heads of an array
  const fits = (layout) => {
    if (layout) show(layout);
    const cut = (figure) => figure.scrollWidth > figure.clientWidth + 1 || stacked(figure.querySelectorAll("table"));
    return now.scrollHeight <= now.clientHeight + 1 && !figures.some(cut);
  };
  for (const part of figures.flatMap((figure) => [...figure.querySelectorAll(".slices")])) {
    unfold(part);
    part.style.zoom = "";
  }
  const own = isLarge() ? LARGE : 1;
  const key = `numbers ${recording.steps[s].call} ${recording.line(s).entry} ${windowKey()}`;
  const all = layouts().filter(({ zoom }) => zoom <= (measured.get(key) ?? zoom));
  const search = () => {
    if (!roomy.matches || document.body.classList.contains("editing")) return null;
    const smaller = all.slice(all.findIndex(({ zoom, tight }) => zoom === own && !tight) + 1);
    if (!fits({ zoom: own, pairs: true })) return fits(smaller.at(-1)) ? smaller.find(fits) : null;
    const high = parts.reduce((sum, part) => sum + part.offsetHeight, 0);
    const wide = Math.max(1, ...figures.map((figure) => figure.offsetWidth));
    const room = own * Math.min(now.clientHeight / high, now.clientWidth / wide);
    return all.find((layout) => (layout.zoom === own || layout.zoom < room) && fits(layout));
  };
  const what = `${s} ${recording.bug?.name} ${parts.map((part) => part.textContent.length)} ${key} ${measured.get(key)}`;
  if (recording.edited || !measured.has(what)) measured.set(what, search());
  const found = measured.get(what);
  show(found ?? { zoom: own, pairs: true });
  now.classList.remove("dense"); // its rows may be as high as others where that fits
  if (found?.tight && !fits()) now.classList.add("dense");
  if (!isLarge()) measured.set(key, Math.max(found?.zoom ?? own, own));
  figures.forEach((figure) => figure.classList.toggle("fitted", Boolean(found)));
  fitMatrices();
}

// Two decimals in place of more, or all of them again. Small numbers keep theirs.
function round(figure, on) {
  const cells = [...figure.querySelectorAll(on ? ".cell" : "[data-text]")];
  if (on && cells.every((cell) => !(Math.abs(cell.dataset.value) >= 0.1))) return;
  for (const cell of cells) {
    if (!on) cell.textContent = cell.dataset.text;
    else if (/\.\d{3,}$/.test((cell.dataset.text ??= cell.textContent))) cell.textContent = signed(Number(cell.dataset.value), (x) => x.toFixed(2));
    if (!on) delete cell.dataset.text;
  }
}

// A matrix wider than its place is written smaller, because a number that is cut off reads as another number. The matrices
// of one array are written smaller, too, if two of them then stand side by side: otherwise the last ones are out of sight.
// Where that would be too small to read, numbers are rounded, or the columns in the middle are folded into "…", until the
// reader wants all.
const smallest = () => (isLarge() ? 16 : 12); // pixels

function fitMatrices() {
  document.querySelectorAll("#now figure:not(.fitted) > .slices").forEach(fitMatrix);
}

function fitMatrix(part) {
  const figure = part.parentElement;
  const zoom = (size) => (part.style.zoom = size);
  const wide = () => part.scrollWidth > part.clientWidth + 1;
  const [first, second] = part.children;
  const fits = () => !wide() && (!second || second.offsetTop === first.offsetTop);
  unfold(part);
  zoom(1);
  part.classList.remove("tight");
  if (fits()) return;
  part.classList.add("tight");
  const zoomed = Number(part.closest("#result, #operands")?.style.zoom) || 1;
  const size = zoomed * parseFloat(getComputedStyle(part.querySelector(".cell, .part") ?? part).fontSize);
  const least = Math.min(smallest() / size, 1);
  const widest = Math.max(part.scrollWidth, second ? 2 * first.offsetWidth : 0) / part.clientWidth;
  const sizes = [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, least].filter((x) => x >= least && x * widest < 1.1);
  const found = (test) => sizes.find((x) => (zoom(x), test()));
  if (found(fits)) return;
  if (first.matches(".partial") || !first.tHead || "unfolded" in figure.dataset) found(() => !wide());
  else if (second && (round(figure, true), zoom(least), fits())) note(part, "Rounded to two decimals. ");
  else {
    zoom(Math.min(16 / size, 1));
    foldColumns(part, fits, wide);
  }
  figure.classList.toggle("scrolls", wide());
}

// What is not shown of a matrix, and a way to see all of it.
function note(part, told) {
  const showAll = () => {
    part.parentElement.dataset.unfolded = "";
    fitMatrix(part);
  };
  part.after(make("p", { class: "folded" }, told, makeButton("Show all", showAll)));
}

function unfold(part) {
  round(part, false);
  part.parentElement.classList.remove("scrolls");
  part.querySelectorAll(".fold").forEach((found) => found.remove());
  part.querySelectorAll(":is(td, th)[hidden]").forEach((found) => (found.hidden = false));
  part.parentElement.querySelector(".folded")?.remove();
}

// Hide columns of the matrices of an array until they fit, two side by side if two columns can stay. Those with marked
// numbers stay longest, then the last one, then the first ones.
function foldColumns(part, fits, wide) {
  const tables = [...part.children].map((table) =>
    [...table.rows].map((row) => [...row.cells].filter((td) => !td.matches(".corner, tbody th"))),
  );
  const columns = [...tables[0][0].keys()];
  const marked = columns.filter((j) => tables.flat().some((row) => row[j].querySelector(".asked, .source, .wrong")));
  const order = [...new Set([...(marked.length < 4 ? marked : []), columns.length - 1, ...columns])];
  const keep = (count) => {
    unfold(part);
    if (tables.length > 1) round(part, true);
    const kept = new Set(order.slice(0, count));
    for (const row of tables.flat())
      row.forEach((cell, j) => {
        cell.hidden = !kept.has(j);
        if (cell.hidden && (j === 0 || kept.has(j - 1))) cell.before(make("td", { class: "more fold" }, "…"));
      });
  };
  const most = (test) => {
    let [low, high] = [0, Math.min(columns.length - 1, 24)]; // low fits, or nothing does; no screen shows more
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      keep(middle);
      if (test()) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  const key = order + part.textContent + part.clientWidth + windowKey();
  let count = measured.get(key) ?? most(fits);
  if (count < 2) count = most(() => !wide()) || 1;
  measured.set(key, count);
  keep(count);
  note(part, `… stands for ${columns.length - count} of ${columns.length} columns. `);
}

// In large text, whether more stands below the edge of the formulas or of their column.
function hintBelow() {
  const hint = byId("more-below");
  const below = (part) => part.scrollHeight - part.clientHeight - part.scrollTop > 4;
  const column = below(hint.parentElement) ? hint.parentElement : byId("formulas");
  hint.hidden = !(roomy.matches && isLarge() && below(column));
  hint.onclick = () => column.scrollBy({ top: column.clientHeight / 2 });
}

// The formulas of a function, too, unless one would take more lines then.
function fillFormulas() {
  const box = byId("formulas");
  const key = `formulas ${box.textContent} ${windowKey()}`;
  const parts = [...box.querySelectorAll(".math")];
  const size = (zoom) => box.style.setProperty("--size", zoom);
  const find = () => {
    size(1);
    const before = parts.map((part) => part.offsetHeight);
    const inside = (zoom) =>
      box.scrollHeight <= box.clientHeight &&
      parts.every((part, i) => part.scrollWidth <= part.clientWidth && part.offsetHeight < 1.05 * Math.max(zoom, 1) * before[i]);
    return [1.6, 1.4, 1.2, 1, 0.9, 0.8, 0.7].find((zoom) => (size(zoom), inside(zoom))) ?? 1;
  };
  if (!measured.has(key)) measured.set(key, roomy.matches ? find() : 1);
  size(measured.get(key));
}
