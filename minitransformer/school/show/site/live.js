// The start page's translator: a number is typed, translated part by part, and each head shows where it looked.
"use strict";

const PACE = 130; // ms for each part of the translation
const FEWEST_DRAWN = 0.03; // a thinner line cannot be seen
const SVG = "http://www.w3.org/2000/svg";
const vector = (tag, attributes) => filled(document.createElementNS(SVG, tag), attributes, []);
// Whose queries look at whose keys, in each kind of attention.
const KINDS = {
  cross: { queries: (made) => made.written, keys: (made) => made.words, verb: "writes", ask: "To write", point: "Point at a German part" },
  encoder: { queries: (made) => made.words, keys: (made) => made.words, verb: "reads", ask: "To read", point: "Point at an English word on the left" },
  decoder: { queries: (made) => made.written, keys: (made) => made.read, verb: "writes", ask: "To write", point: "Point at a German part on the left" },
};

document.addEventListener("DOMContentLoaded", () => {
  const translator = new Translator(MODEL);
  const [field, picture, heads] = [byId("number"), byId("looks"), byId("heads")];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const known = (n) => english(n).every((word) => translator.source.includes(word));
  const lowest = known(0) ? 0 : 1;
  let made = null; // of the number that is shown: words, read, written, weights
  let kind = "cross";
  let head = null; // which of all heads, layer by layer, is drawn large
  let pointed = null; // the query that the reader points at
  let shown = 0; // how many parts of the translation have appeared
  let timer;

  const mapOf = (h) => made.weights[kind][h];
  const nameOf = (h) => `layer ${Math.floor(h / translator.heads) + 1}, head ${(h % translator.heads) + 1}`;
  const best = (row) => row.indexOf(Math.max(...row));
  const share = (weight) => weight.toFixed(2);

  function translate() {
    const text = field.value.trim();
    const wrong = refusal(text);
    field.setAttribute("aria-invalid", String(wrong !== ""));
    byId("pictured").hidden = wrong !== "";
    if (wrong) return refuse(wrong);
    const words = english(Number(text));
    const began = performance.now();
    made = { words, ...translator.translate(words) };
    const time = performance.now() - began;
    if (head === null) head = sharpest();
    pointed = null;
    const got = made.written.filter((part) => part !== "<end>").join("");
    const wanted = german(Number(text));
    const right = got === wanted;
    const verdict = right ? make("span", { class: "right" }, "✓ right") : make("span", { class: "wrong" }, `✗ it should be ${wanted}`);
    byId("why").textContent = right ? "" : why(String(Number(text)).length);
    byId("said").replaceChildren(make("strong", { lang: "de" }, got || "(nothing)"), " ", verdict);
    byId("cost").textContent = `${translator.size.toLocaleString("en")} parameters computed this in your browser in ${Math.max(1, Math.round(time))} ms.`;
    draw();
    reveal();
    performance.mark("translated");
  }

  // What is wrong with a text, or "" if the model can read it.
  function refusal(text) {
    const range = `whole number from ${lowest} to 99999`;
    if (!/^\d+$/.test(text)) return `Type a ${range}.`;
    if (Number(text) > 99_999) return `${text} is too large: the model learnt no number above 99999. Type a ${range}.`;
    if (!known(Number(text))) return `The model never met the word “${english(Number(text)).find((word) => !translator.source.includes(word))}”. Type a ${range}.`;
    return "";
  }

  // Say what is wrong, and show nothing of the number before.
  function refuse(wrong) {
    clearInterval(timer);
    made = null;
    byId("said").textContent = wrong;
    byId("why").textContent = "";
  }

  // How often the model is right with numbers as long as this one, and with the longest.
  function why(digits) {
    const told = (length) => `${translator.tried[length - 1][1]} of ${translator.tried[length - 1][0]} numbers of ${length} digit${length > 1 ? "s" : ""}`;
    if (digits === 5) return `When tried, this small model got ${told(5)} right.`;
    return `When tried, this small model got ${told(digits)} right, and ${told(5)}. It learnt from numbers below 100,000; nine in ten of these have 5 digits, so it seldom met short ones.`;
  }

  // The head of the cross-attention whose queries look most at one place.
  function sharpest() {
    const sharpness = made.weights.cross.map((map) => map.reduce((total, row) => total + Math.max(...row), 0));
    return best(sharpness);
  }

  // Let the parts of the translation appear one after the other, as the model writes them.
  function reveal() {
    clearInterval(timer);
    const all = made.written.length;
    shown = still.matches || kind === "encoder" ? all : 0;
    light();
    if (shown === all) return;
    timer = setInterval(() => {
      shown += 1;
      light();
      if (shown >= all) clearInterval(timer);
    }, PACE);
  }

  // The two columns, a curve for each weight between them, and a small map for each head.
  function draw() {
    const { queries, keys, verb } = KINDS[kind];
    const [asking, asked] = [queries(made), keys(made)];
    const rows = Math.max(asking.length, asked.length);
    const height = (i, among) => (rows - among) / 2 + i + 0.5;
    const place = (i, among) => `top: ${height(i, among) + 0.5}lh`; // below the captions
    const right = asked.map((word, j) => make("li", { style: place(j, asked.length) }, word));
    const left = asking.map((word, i) => {
      const button = make("button", { type: "button" }, word);
      for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => point(i));
      return make("li", { style: place(i, asking.length) }, button);
    });
    const svg = vector("svg", { viewBox: `0 0 1 ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    mapOf(head).forEach((row, i) =>
      row.forEach((weight, j) => {
        if (weight < FEWEST_DRAWN) return;
        const [from, to] = [height(i, asking.length), height(j, asked.length)];
        const path = vector("path", { d: `M0 ${from}C.5 ${from} .5 ${to} 1 ${to}`, "data-query": i });
        path.style.strokeWidth = `${0.5 * weight}rem`;
        path.style.opacity = 0.2 + 0.7 * weight;
        svg.append(path);
      }),
    );
    picture.style.height = `${rows + 1}lh`;
    const caption = (side, text) => make("span", { class: `caption ${side}` }, text);
    const looking = make("ul", { class: "queries", "aria-label": "Looking" }, ...left);
    const looked = make("ul", { class: "keys", "aria-label": "Looked at" }, ...right);
    picture.replaceChildren(caption("looking", verb), caption("looked", "looks at"), looking, svg, looked);
    const alone = asked.length === 1;
    heads.hidden = alone;
    byId("squares").textContent = alone
      ? `There is one word to look at, “${asked[0]}”, so each head gives it the whole weight, 1. Type a number of more words to see the heads differ.`
      : "Each small square is one head: a row for each word on the left, a column for each on the right; the stronger the colour, the more it looks there. Press one to draw its lines.";
    const maps = made.weights[kind].map((map, h) => {
      const canvas = make("canvas", { width: asked.length, height: asking.length });
      const choose = () => {
        head = h;
        draw();
        finish();
        heads.children[h].focus();
      };
      const label = [make("span", {}, nameOf(h)), canvas, make("span", { class: "most" })];
      return makeButton(label, choose, { "aria-pressed": String(h === head) });
    });
    heads.replaceChildren(...maps);
    paint();
  }

  // A pixel for each weight, the darker the larger, in the colour that the style gives.
  function paint() {
    made?.weights[kind].forEach((map, h) => {
      const canvas = heads.children[h].querySelector("canvas");
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.fillStyle = getComputedStyle(canvas).color;
      map.forEach((row, i) =>
        row.forEach((weight, j) => {
          context.globalAlpha = weight;
          context.fillRect(j, i, 1, 1);
        }),
      );
    });
  }

  function finish() {
    if (!made) return;
    clearInterval(timer);
    shown = made.written.length;
    light();
  }

  function point(query) {
    pointed = query;
    finish();
  }

  // What is lit: the parts that have appeared or, while the reader points at one, that one.
  function light() {
    const { queries, keys, ask, point: how } = KINDS[kind];
    const [asking, asked] = [queries(made), keys(made)];
    const now = pointed ?? (shown < made.written.length ? shown - 1 : null);
    const reached = (i) => kind === "encoder" || i < shown;
    const row = now !== null && now >= 0 ? mapOf(head)[now] : null;
    for (const path of picture.querySelectorAll("path")) {
      const i = Number(path.dataset.query);
      path.classList.toggle("faint", now !== null && i !== now);
      path.classList.toggle("later", !reached(i));
    }
    picture.querySelectorAll(".queries li").forEach((item, i) => {
      item.classList.toggle("later", !reached(i));
      item.classList.toggle("lit", i === now);
    });
    picture.querySelectorAll(".keys li").forEach((item, j) => item.classList.toggle("lit", row !== null && j === best(row)));
    for (const [h, button] of [...heads.children].entries()) {
      const looks = row && mapOf(h)[now];
      button.querySelector(".most").textContent = looks ? asked[best(looks)] : "";
    }
    if (!row) {
      byId("readout").textContent = `${how}, to see where each head looks.`;
      return;
    }
    const order = [...row.keys()].sort((a, b) => row[b] - row[a]).filter((j) => row[j] >= 0.05);
    const seen = order.slice(0, 3).map((j) => `“${asked[j]}” (${share(row[j])})`).join(", ");
    byId("readout").textContent = `${ask} “${asking[now]}”, ${nameOf(head)} looks at ${seen || "everything a little"}.`;
  }

  picture.addEventListener("mouseleave", () => {
    if (picture.contains(document.activeElement)) return;
    pointed = null;
    finish();
  });
  for (const choice of document.querySelectorAll("input[name=kind]"))
    choice.addEventListener("change", () => {
      kind = choice.value;
      pointed = null;
      if (made) draw();
      finish();
    });
  field.addEventListener("input", translate);
  byId("ask").addEventListener("submit", (event) => event.preventDefault()); // Enter keeps the number
  byId("another").addEventListener("click", () => {
    field.value = lowest + Math.floor(Math.random() * (100_000 - lowest));
    translate();
  });
  byId("theme").addEventListener("click", () => setTimeout(paint));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  for (const link of document.querySelectorAll('a[href="#live"]'))
    link.addEventListener("click", () => setTimeout(() => field.focus())); // after the browser has scrolled there
  byId("live").hidden = false;
  translate();
});
