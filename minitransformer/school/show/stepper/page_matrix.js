// Drawing: formulas, and matrices as tables or, if they are large, as pictures.

const MATHML = "http://www.w3.org/1998/Math/MathML";

function math([tag, attributes, ...children]) {
  const inside = children.map((child) => (typeof child === "string" ? child.replaceAll("_", "\u00a0") : math(child)));
  return filled(document.createElementNS(MATHML, tag), attributes, inside);
}

const shapeText = (shape) => (shape.length ? shape.join(" × ") : "number");

const kindText = (array) => (array.shape.length || array.kind !== "bool" ? shapeText(array.shape) : "True or False");

// A figure with an array in it.
//   name, kind ("value", "gradient", "numerical", "gap"), array ({shape, kind, data}), caption: instead of the name; about: its tooltip
//   role: "result", "operand" or "input"; place: [step, bound]; covered: show ? for every number, or for all: "shape"
function matrixFigure(recording, options) {
  const { array, name, kind, role } = options;
  options.spoken ??= options.place ? nameOf(recording, options.place).textContent : name;
  const caption = make(
    "figcaption",
    options.about ? { title: options.about } : {},
    ...(options.caption ? [options.caption] : captionOf(recording, name, options.place)),
    ...outsideOf(recording, options.place),
    make("span", { class: "shape" }, options.covered === "shape" ? "" : kindText(array)),
    ...(role === "pair" ? [make("span", { class: "told" }, "forward value, same shape")] : []),
  );
  const single = array.shape.length ? "" : " single";
  const figure = make("figure", { class: `matrix ${kind} ${role}${single}`, "data-name": name });
  if (options.place) figure.dataset.place = options.place.join(",");
  figure.append(caption);
  if (!array.data || options.covered === "shape") {
    if (options.covered) figure.append(make("div", { class: "covered" }, "?"));
    else {
      if (array.corner && role !== "printed") figure.append(make("div", { class: "slices" }, cornerTable(recording, array, options)));
      figure.append(make("p", { class: "summary" }, array.summary));
    }
  } else if (array.data.length === 0) {
    figure.append(make("p", { class: "summary" }, "no elements"));
  } else if (array.data.length > recording.data.limits.exact) {
    figure.append(picture(array, options.spoken, options.covered));
  } else {
    figure.append(make("div", { class: "slices" }, ...tables(recording, options)));
  }
  return figure;
}

// One table for each matrix in the array: an array (B, H, T, d) has B·H of them.
function tables(recording, options) {
  const { array } = options;
  const [rows, columns] = [array.shape.at(-2) ?? 1, array.shape.at(-1) ?? 1];
  const outer = array.shape.slice(0, -2);
  const write = options.write || numberFormat(array);
  const labels = headings(recording, options.name, array.shape);
  const heat = options.role === "check" ? null : heatOf(array);
  const found = [];
  const ofHeads = options.place && recording.hasHeads(options.place[0], array.shape);
  for (let start = 0; start < array.data.length; start += rows * columns) {
    const index = indexOf(outer, start / (rows * columns));
    const before = outer.slice(0, -1).some((size) => size > 1) ? `[${index.slice(0, -1).join(", ")}] ` : "";
    const slice = !outer.length ? "" : ofHeads ? `${before}head ${index.at(-1) + 1}` : `[${index.join(", ")}]`;
    const caption = make("caption", slice ? {} : { class: "hidden" }, slice || `${options.spoken}, ${shapeText(array.shape)}`);
    const corner = array.shape.length > 1 ? [make("td", { class: "corner" })] : [];
    const lines = Array.from({ length: rows }, (_, i) => [
      ...(array.shape.length > 1 ? [rowHead(labels, i)] : []),
      ...Array.from({ length: columns }, (_, j) => cell(options, start + i * columns + j, write, heat)),
    ]);
    found.push(tableOf({}, caption, array.shape.length ? [...corner, ...columnHeads(labels, columns)] : [], lines));
  }
  return found;
}

// The first rows and columns of an array that was too large to keep, with … where it continues.
function cornerTable(recording, array, { name, spoken: told }) {
  const { corner } = array;
  const [rows, columns] = [corner.shape.at(-2) ?? 1, corner.shape.at(-1)];
  const [below, beside] = [rows < (array.shape.at(-2) ?? 1), columns < array.shape.at(-1)];
  const outer = array.shape.slice(0, -2).map(() => 0);
  const write = numberFormat(corner);
  const labels = headings(recording, name, array.shape);
  const more = (count) => Array.from({ length: count }, () => make("td", { class: "more" }, "…"));
  const line = (i) => [
    rowHead(labels, i),
    ...Array.from({ length: columns }, (_, j) => {
      const number = corner.data[i * columns + j];
      return make("td", { class: "part", title: String(number) }, write(number));
    }),
    ...more(beside ? 1 : 0),
  ];
  const spoken = `first ${rows} by ${columns} of ${told}, ${shapeText(array.shape)}`;
  const caption = make("caption", outer.length ? {} : { class: "hidden" }, outer.length ? `[${outer.join(", ")}]` : spoken);
  const heads = [make("td", { class: "corner" }), ...columnHeads(labels, columns), ...more(beside ? 1 : 0)];
  const lines = [...Array.from({ length: rows }, (_, i) => line(i)), ...(below ? [more(columns + 1 + (beside ? 1 : 0))] : [])];
  return tableOf({ class: "partial" }, caption, heads, lines);
}

// A table of lines of cells; heads: the cells above them, if any.
function tableOf(attributes, caption, heads, lines) {
  const row = (cells) => make("tr", {}, ...cells);
  const head = heads.length ? [make("thead", {}, row(heads))] : [];
  return make("table", attributes, caption, ...head, make("tbody", {}, ...lines.map(row)));
}

const columnHeads = (labels, columns) =>
  Array.from({ length: columns }, (_, j) => make("th", { scope: "col" }, labels.columns[j] ?? String(j)));
const rowHead = (labels, i) => make("th", { scope: "row" }, labels.rows[i] ?? String(i));

// The tokens at the rows of an array with one row per token, and at both axes of scores and weights. The tokens that are
// read and those of the memory are told apart by their number.
function headings(recording, name, shape) {
  const { tokens, memory } = recording.data;
  const labels = (size) => [tokens, memory].find((all) => all.length && all.length === size) ?? [];
  const plain = name.replace(/^d/, "");
  const isParameter = /^(w_|weight$|table$|gamma$|beta$|bias$)/.test(plain) || /^(w_|weight$)/.test(name);
  const rows = isParameter ? [] : labels(shape.at(-2));
  const pairs = ["scores", "biased", "visible", "exponentials", "weights", "kept"].includes(plain);
  return { rows, columns: rows.length && pairs ? labels(shape.at(-1)) : [] };
}

function cell(options, flat, write, heat) {
  const { array, role } = options;
  const place = indexOf(array.shape, flat);
  const number = array.data[flat];
  const wrong = array.wrong && array.wrong.has(flat);
  const spoken = `${options.spoken}${place.length ? ` ${place.join(", ")}` : ""}`;
  if (role === "input") {
    const field = make("input", {
      type: "text",
      inputmode: "decimal",
      "aria-label": spoken,
      "data-flat": flat,
      size: 5,
    });
    field.value = String(number);
    return make("td", {}, field);
  }
  const shown = options.covered ? "?" : write(number);
  const button = make(
    "button",
    {
      type: "button",
      class: "cell",
      tabindex: flat === 0 ? "0" : "-1",
      "data-flat": flat,
      "aria-label": `${spoken}: ${options.covered ? "covered" : shown}${wrong ? ", wrong" : ""}`,
    },
    shown,
  );
  if (!options.covered) {
    button.dataset.value = String(number);
    const before = beforeIt(array, flat);
    button.title = String(number) + before;
    if (before && !wrong) button.style.border = "1px dashed"; // an edit changed it
    const share = heat ? heat(number) : number;
    if (heat) button.style.setProperty("--heat", `${Math.round(Math.abs(share) * 100)}%`);
    if (share < 0) button.classList.add("below");
  }
  if (wrong && !options.covered) button.classList.add("wrong");
  return make("td", {}, button);
}

// A number relative to the largest of its array, from -1 to 1.
function heatOf(array) {
  if (array.data.length === 1) return () => 0; // nothing to compare with
  let largest = 0;
  for (const x of array.data) if (Number.isFinite(x)) largest = Math.max(largest, Math.abs(x));
  return (x) => (Number.isFinite(x) ? x / (largest || 1) : Math.sign(x) || 0);
}

// A large array as a picture, its matrices side by side; a click shows the number under it.
function picture(array, name, covered) {
  const [rows, columns] = [array.shape.at(-2) ?? 1, array.shape.at(-1) ?? 1];
  const count = array.data.length / (rows * columns);
  const across = Math.ceil(Math.sqrt(count));
  const canvas = make("canvas", {
    role: "img",
    width: across * (columns + 1) - 1,
    height: Math.ceil(count / across) * (rows + 1) - 1,
    "aria-label": `${name}, ${shapeText(array.shape)}, as a heat map`,
  });
  canvas.style.setProperty("--columns", canvas.width);
  const told = make("p", { class: "summary" }, "Click a cell to read its number.");
  if (covered) return make("div", { class: "covered" }, "?");
  const heat = heatOf(array);
  const image = canvas.getContext("2d");
  const pixels = image.createImageData(canvas.width, canvas.height);
  for (let flat = 0; flat < array.data.length; flat++) {
    const slice = Math.floor(flat / (rows * columns)),
      inside = flat % (rows * columns);
    const x = (slice % across) * (columns + 1) + (inside % columns);
    const y = Math.floor(slice / across) * (rows + 1) + Math.floor(inside / columns);
    const share = heat(array.data[flat]);
    pixels.data.set([...(share < 0 ? below : above), Math.round(30 + 225 * Math.abs(share))], 4 * (y * canvas.width + x));
  }
  image.putImageData(pixels, 0, 0);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * canvas.width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * canvas.height);
    const slice = Math.floor(y / (rows + 1)) * across + Math.floor(x / (columns + 1));
    const [i, j] = [y % (rows + 1), x % (columns + 1)];
    const flat = slice * rows * columns + i * columns + j;
    if (i >= rows || j >= columns || !(flat < array.data.length)) return;
    told.textContent = `${name}[${indexOf(array.shape, flat).join(", ")}] = ${readable(array.data[flat])}`;
  });
  return make("div", { class: "picture" }, canvas, told);
}
