// What the page shows now, and everything that changes it.

const state = { kind: data.maps.length - 1, layer: 0, head: 0, gradient: false, choice: data.chosen, query: 0, key: 0 };
const FEWEST_DRAWN = 0.02; // of the largest: a thinner line cannot be seen
const FAINT = 0.12; // of the opacity, for lines of other queries

// ---- All maps, small. ----

const buttons = new Map(); // "kind,layer,head" to its button
const keyOf = (kind, layer, head) => `${kind},${layer},${head}`;

function buildOverview() {
  data.maps.forEach((maps, kind) => {
    const many = maps.heads > 6;
    const named = (head) => (many && head ? `${head + 1}` : `head ${head + 1}`);
    const heads = Array.from({ length: maps.heads }, (_, head) => make("span", {}, named(head)));
    const box = make("div", { class: many ? "kind many" : "kind", role: "group", "aria-label": maps.name });
    box.append(make("h2", {}, maps.name), make("div", { class: "row heads", "aria-hidden": "true" }, make("span"), ...heads));
    for (let layer = 0; layer < maps.layers; layer++) {
      const row = make("div", { class: "row" }, make("span", { "aria-hidden": "true" }, `layer ${maps.which[layer]}`));
      for (let head = 0; head < maps.heads; head++) {
        const canvas = make("canvas", { width: maps.columns.length, height: maps.rows.length });
        const label = `${maps.name}, layer ${maps.which[layer]}, head ${head + 1}`;
        const button = makeButton(canvas, () => select(kind, layer, head), { class: "map", "aria-label": label, title: label });
        buttons.set(keyOf(kind, layer, head), button);
        row.append(button);
      }
      box.append(row);
    }
    byId("overview").append(box);
  });
}

// Draw numbers into a canvas with a pixel for each: the larger one is, as a share of the largest, the more colour.
function paint(canvas, numbers, most) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  numbers.forEach((x, i) => {
    const colour = x < 0 ? below : above;
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = colour[c];
    image.data[4 * i + 3] = most ? (255 * Math.abs(x)) / most : 0;
  });
  context.putImageData(image, 0, 0);
}

// Draw all small maps, in the next frame, so that the large map need not wait for them.
function paintOverview() {
  requestAnimationFrame(() => requestAnimationFrame(paintMaps));
}

function paintMaps() {
  const most = state.gradient ? largestSlope() : 1;
  data.maps.forEach((maps, kind) => {
    for (let layer = 0; layer < maps.layers; layer++)
      for (let head = 0; head < maps.heads; head++)
        paint(buttons.get(keyOf(kind, layer, head)).firstChild, shownOf(maps, layer, head), most);
  });
}

// ---- One map, large. ----

const cells = [];
const written = (maps) => maps.columns.length <= 16; // whether there is room for numbers in the cells

function buildMatrix() {
  const maps = data.maps[state.kind];
  const size = written(maps) ? (maps.columns.length <= 8 ? 2.4 : 2.1) : maps.columns.length <= 32 ? 1.3 : 0.9;
  const table = byId("matrix");
  table.style.setProperty("--cell", `${size}rem`);
  table.classList.toggle("dense", !written(maps));
  const label = (token, scope) => make("th", { scope, title: token }, token);
  const caption = maps.queries === maps.keys ? "rows look at columns" : "rows (target) look at columns (source)";
  const head = make("thead", {}, make("tr", {}, make("td"), ...maps.columns.map((token) => label(token, "col"))));
  const body = make("tbody");
  cells.length = 0;
  maps.rows.forEach((token, i) => {
    const row = make("tr", {}, label(token + nextOf(maps, i), "row"));
    maps.columns.forEach((_, j) => {
      const cell = make("button", { type: "button", tabindex: "-1" });
      if (masked(maps, i, j)) {
        cell.className = "masked";
        cell.ariaLabel = spoken(i, j);
      }
      cell.addEventListener("mouseenter", () => point(i, j));
      cell.addEventListener("focus", () => point(i, j));
      cells.push(cell);
      row.append(make("td", {}, cell));
    });
    body.append(row);
  });
  table.replaceChildren(make("caption", {}, caption), head, body);
  if (written(maps)) return;
  const [width, height] = [maps.columns.length, maps.rows.length];
  cells[0].before(make("canvas", { width, height, style: `width: ${width * size}rem; height: ${height * size}rem` }));
}

function paintMatrix() {
  const maps = data.maps[state.kind];
  const numbers = shownOf(maps, state.layer, state.head);
  const most = state.gradient ? largest(numbers) : 1;
  if (!written(maps)) return paint(byId("matrix").querySelector("canvas"), numbers, most); // a cell is labelled when pointed at
  const under = getComputedStyle(byId("matrix").parentElement).backgroundColor.match(/[\d.]+/g).map(Number);
  numbers.forEach((x, flat) => {
    const cell = cells[flat];
    const [i, j] = [Math.floor(flat / maps.columns.length), flat % maps.columns.length];
    const heat = most ? Math.abs(x) / most : 0;
    if (masked(maps, i, j)) return;
    cell.style.backgroundColor = `rgb(${(x < 0 ? below : above).join(" ")} / ${heat.toFixed(2)})`;
    cell.className = [x < 0 && "below", heat > 0.3 && readable(x < 0 ? below : above, heat, under), heat < 0.005 && "faint"].filter(Boolean).join(" ");
    cell.textContent = state.gradient ? short(x, most) : x < 0.005 ? "0" : x.toFixed(2);
    cell.setAttribute("aria-label", `${cell.textContent}, ${spoken(i, j, x)}`); // begins with what is seen
  });
}

// Whether black or white letters have more contrast on a colour laid over another with the opacity `heat`. Their contrast
// is equal where the luminance is 0.179 (WCAG 2.2).
function readable(colour, heat, under) {
  const [red, green, blue] = colour.map((part, c) => {
    const mixed = (heat * part + (1 - heat) * under[c]) / 255;
    return mixed <= 0.04045 ? mixed / 12.92 : ((mixed + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "black" : "white";
}

// A gradient in a few characters: in units of a power of ten; the note below states the unit if it is not 1.
const exponent = (most) => (most === 0 || (most >= 0.1 && most < 10) ? 0 : Math.floor(Math.log10(most)));
function short(x, most) {
  const text = (Math.abs(x) / 10 ** exponent(most)).toFixed(2);
  return text === "0.00" ? "0" : (x < 0 ? "−" : "") + text;
}

function spoken(i, j, x) {
  const maps = data.maps[state.kind];
  const pair = `${quoted(maps.rows[i])} to ${quoted(maps.columns[j])}: `;
  if (masked(maps, i, j)) return `${pair}masked`;
  return pair + (state.gradient ? `gradient ${signed(x)}` : x.toFixed(3));
}

let curves = []; // of the large map: query, height of both ends, share of the largest, sign

function drawLines() {
  const maps = data.maps[state.kind];
  const numbers = shownOf(maps, state.layer, state.head);
  const most = state.gradient ? largest(numbers) : 1;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const count = Math.max(maps.rows.length, maps.columns.length);
  const step = (count <= 16 ? 2.1 : 1.35) * rem;
  const middle = 8 * rem;
  const top = 1.5 * rem;
  const y = (i, among) => top + ((count - among) / 2 + i + 0.5) * step;
  const ruler = make("canvas").getContext("2d");
  ruler.font = `bold ${rem}px ${getComputedStyle(document.body).fontFamily}`;
  const widest = (texts) => Math.max(5.5 * rem, ...texts.map((text) => ruler.measureText(text).width)) + 8;
  const asking = maps.rows.map((token, i) => [cut(token), nextOf(maps, i)]);
  const side = widest(asking.map((texts) => texts.join("")));
  const svg = byId("lines");
  svg.setAttribute("width", side + middle + widest(maps.columns.map(cut)));
  svg.setAttribute("height", top + count * step);
  const caption = (x, anchor, words) => vector("text", { class: "caption", x, y: 0.5 * rem, "text-anchor": anchor }, words);
  const children = [caption(side - 6, "end", asking.some(([, next]) => next) ? "reads → writes" : "reads"), caption(side + middle + 6, "start", "looks at")];
  curves = [];
  numbers.forEach((x, flat) => {
    const [i, j] = [Math.floor(flat / maps.columns.length), flat % maps.columns.length];
    const share = most ? Math.abs(x) / most : 0;
    if (share >= FEWEST_DRAWN) curves.push({ i, from: y(i, maps.rows.length), to: y(j, maps.columns.length), share, x });
  });
  asking.forEach(([token, next], i) => {
    const look = { class: "token", x: side - 6, y: y(i, maps.rows.length), "text-anchor": "end", "data-query": i };
    const target = vector("rect", { x: 0, y: look.y - step / 2, width: side, height: step });
    const word = vector("text", look, token, vector("tspan", { class: "next" }, next), vector("title", {}, maps.rows[i]));
    for (const element of [target, word]) element.addEventListener("mouseenter", () => point(i, bestKey(i)));
    children.push(target, word);
  });
  maps.columns.forEach((token, j) => {
    const look = { class: "token", x: side + middle + 6, y: y(j, maps.columns.length), "data-key": j };
    children.push(vector("text", look, cut(token), vector("title", {}, token)));
  });
  svg.replaceChildren(...children);
  const canvas = byId("curves");
  const sharp = Math.max(devicePixelRatio, 2); // pixels of the canvas for one of the page, also for print
  const [width, height] = [middle, top + count * step];
  Object.assign(canvas, { width: width * sharp, height: height * sharp });
  Object.assign(canvas.style, { left: `${side}px`, width: `${width}px`, height: `${height}px` });
  canvas.getContext("2d").scale(sharp, sharp);
  drawCurves();
}

// Draw the curves; if a query is given, those of the others are faint.
function drawCurves(query) {
  const canvas = byId("curves");
  const context = canvas.getContext("2d");
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const right = parseFloat(canvas.style.width);
  context.clearRect(0, 0, right, parseFloat(canvas.style.height));
  for (const { i, from, to, share, x } of curves) {
    context.beginPath();
    context.moveTo(0, from);
    context.bezierCurveTo(right / 2, from, right / 2, to, right, to);
    context.lineWidth = 0.55 * rem * share;
    context.globalAlpha = (0.25 + 0.75 * share) * (query === undefined || query === i ? 1 : FAINT);
    context.strokeStyle = `rgb(${(x < 0 ? below : above).join(" ")})`;
    context.stroke();
  }
}

const cut = (token) => (token.length > 14 ? `${token.slice(0, 13)}…` : token);

// The token predicted at the position of a query, as " → und". Empty in an encoder.
const predicted = new Map(data.choices.map((choice) => [choice.position, choice.name]));
function nextOf(maps, i) {
  const next = maps.queries === data.sequences.length - 1 ? predicted.get(i) : undefined;
  return next === undefined ? "" : ` → ${cut(next)}`;
}

// The key with the largest number, by absolute value, in the row of a query.
function bestKey(i) {
  const maps = data.maps[state.kind];
  const row = shownOf(maps, state.layer, state.head).subarray(i * maps.columns.length, (i + 1) * maps.columns.length);
  return row.reduce((best, x, j) => (Math.abs(x) > Math.abs(row[best]) ? j : best), 0);
}

// ---- One query and one key. ----

function point(i, j) {
  const maps = data.maps[state.kind];
  cells[state.query * maps.columns.length + state.key].tabIndex = -1;
  Object.assign(state, { query: i, key: j });
  const flat = i * maps.columns.length + j;
  const seen = cells[flat].textContent;
  cells[flat].setAttribute("aria-label", (seen && `${seen}, `) + spoken(i, j, shownOf(maps, state.layer, state.head)[flat]));
  const weight = weightsOf(maps, state.layer, state.head)[flat];
  const pair = `${quoted(maps.rows[i])}${nextOf(maps, i)} looks at ${quoted(maps.columns[j])}: `;
  const readout = [pair, make("strong", {}, masked(maps, i, j) ? "masked" : `weight ${weight.toFixed(3)}`)];
  if (state.gradient && !masked(maps, i, j)) {
    const slope = shownOf(maps, state.layer, state.head)[flat];
    const meaning = slope === 0 ? "the logit does not depend on it" : `more weight here ${slope > 0 ? "raises" : "lowers"} the logit`;
    readout.push(", ", make("strong", {}, `gradient ${signed(slope)}`), `: ${meaning}`);
  }
  byId("readout").replaceChildren(...readout);
  drawCurves(i);
  for (const word of byId("lines").querySelectorAll(".token"))
    word.classList.toggle("lit", word.dataset.query === String(i) || word.dataset.key === String(j));
  byId("matrix").querySelectorAll("tbody th").forEach((th, at) => th.classList.toggle("lit", at === i));
  byId("matrix").querySelectorAll("thead th").forEach((th, at) => th.classList.toggle("lit", at === j));
  cells[flat].tabIndex = 0;
}

// Nothing is pointed at now: show all lines.
function release() {
  if (byId("matrix").contains(document.activeElement)) return;
  byId("readout").textContent = "Point at a token or a cell.";
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  drawCurves();
}

// ---- What changes the page. ----

function show() {
  const maps = data.maps[state.kind];
  byId("map-title").textContent = `${maps.name}, layer ${maps.which[state.layer]}, head ${state.head + 1}`;
  for (const [key, button] of buttons) {
    const current = key === keyOf(state.kind, state.layer, state.head);
    button.setAttribute("aria-current", String(current));
    button.tabIndex = current ? 0 : -1;
  }
  paintMatrix();
  drawLines();
  legend();
  release();
  if (byId("matrix").contains(document.activeElement)) point(state.query, state.key);
}

function legend() {
  const maps = data.maps[state.kind];
  const most = largest(shownOf(maps, state.layer, state.head));
  byId("scale").classList.toggle("signed", state.gradient);
  byId("low").textContent = state.gradient ? signed(-most) : "0";
  byId("high").textContent = state.gradient ? signed(most) : "1";
  const power = written(maps) ? exponent(most) : 0;
  const unit = power ? ` Numbers in the cells are in units of ${Number(`1e${power}`)}.` : "";
  byId("note").textContent = state.gradient
    ? `The gradient of the logit with respect to each weight, from the backward pass. The small maps share one scale, ` +
      `±${signed(largestSlope()).slice(1)}; the large map has its own.${unit}`
    : "Each row of weights sums to 1. The larger a weight, the wider its line; weights below 0.02 have no line.";
}

function select(kind, layer, head, focus = false) {
  const rebuild = kind !== state.kind;
  Object.assign(state, { kind, layer, head });
  if (rebuild) {
    Object.assign(state, { query: 0, key: 0 });
    buildMatrix();
    cells[0].tabIndex = 0;
  }
  show();
  if (focus) buttons.get(keyOf(kind, layer, head)).focus();
}

// Select the head beside, or the layer above or below; after the last layer comes the next kind of attention.
function move(down, right) {
  const rows = data.maps.flatMap((maps, kind) => Array.from({ length: maps.layers }, (_, layer) => [kind, layer]));
  const at = rows.findIndex(([kind, layer]) => kind === state.kind && layer === state.layer);
  const [kind, layer] = rows[Math.min(Math.max(at + down, 0), rows.length - 1)];
  select(kind, layer, Math.min(Math.max(state.head + right, 0), data.maps[kind].heads - 1), true);
}

function moveCell(down, right) {
  const maps = data.maps[state.kind];
  const i = Math.min(Math.max(state.query + down, 0), maps.rows.length - 1);
  const j = Math.min(Math.max(state.key + right, 0), maps.columns.length - 1);
  cells[i * maps.columns.length + j].focus();
}

function choose(n) {
  if (n < 0 || n >= data.choices.length) return;
  state.choice = n;
  byId("choice").value = n;
  paintOverview();
  show();
}

function showGradient(on) {
  state.gradient = on;
  byId("of").hidden = !on;
  redraw();
}

function redraw() {
  paintOverview();
  show();
}

function start() {
  addTools({ gradient: showGradient }, redraw);
  data.choices.forEach((choice, n) => {
    const after = choice.position === null ? "" : ` after ${quoted(data.sequences.at(-1)[choice.position])}`;
    const percent = (100 * choice.probability).toFixed(1);
    byId("choice").append(make("option", { value: n }, `${quoted(choice.name)}${after} (${percent} %)`));
  });
  byId("choice").value = state.choice;
  byId("choice").addEventListener("change", () => choose(Number(byId("choice").value)));
  for (const id of ["matrix", "lines"]) byId(id).addEventListener("mouseleave", release);
  byId("matrix").addEventListener("focusout", () => setTimeout(release));

  const arrows = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const letters = { g: "gradient", t: "large", d: "theme" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open || event.target.matches("select")) return;
    const inside = byId("matrix").contains(document.activeElement);
    if (arrows[event.key]) (inside ? moveCell : move)(...arrows[event.key]);
    else if (letters[event.key.toLowerCase()]) toggle(letters[event.key.toLowerCase()]);
    else if (state.gradient && (event.key === "," || event.key === ".")) choose(state.choice + (event.key === "." ? 1 : -1));
    else if (event.key === "?") byId("keys").showModal();
    else if (event.key === "Escape" && inside) buttons.get(keyOf(state.kind, state.layer, state.head)).focus();
    else return;
    event.preventDefault();
  });

  state.layer = data.maps[state.kind].layers - 1;
  buildOverview();
  paintMaps();
  buildMatrix();
  cells[0].tabIndex = 0;
  show();
}

start();
