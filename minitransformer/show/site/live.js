// The start page's translator: a number is typed, translated part by part, and each head shows where it looked.
"use strict";

const PACE = 130; // ms for each part of the translation
const FEWEST_DRAWN = 0.03; // a thinner line cannot be seen
const SVG = "http://www.w3.org/2000/svg";
// Whose queries look at whose keys, in each kind of attention.
const KINDS = {
  cross: { queries: (made) => made.written, keys: (made) => made.words, ask: "To write", point: "Point at a German part" },
  encoder: { queries: (made) => made.words, keys: (made) => made.words, ask: "To read", point: "Point at an English word on the right" },
  decoder: { queries: (made) => made.written, keys: (made) => made.read, ask: "To write", point: "Point at a German part" },
};

document.addEventListener("DOMContentLoaded", () => {
  const translator = new Translator(MODEL);
  const [field, picture, heads] = [byId("number"), byId("looks"), byId("heads")];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let made; // of the number that is shown: words, read, written, weights
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
    const fine = /^\d{1,5}$/.test(text);
    field.setAttribute("aria-invalid", String(!fine));
    if (!fine) return byId("said").replaceChildren("Type a whole number from 0 to 99999.");
    const words = english(Number(text));
    const began = performance.now();
    made = { words, ...translator.translate(words) };
    const time = performance.now() - began;
    if (head === null) head = sharpest();
    pointed = null;
    const got = made.written.filter((part) => part !== "<end>").join("");
    const wanted = german(Number(text));
    const verdict = got === wanted ? make("span", { class: "right" }, "✓ right") : make("span", { class: "wrong" }, `✗ it should be ${wanted}`);
    byId("said").replaceChildren(make("strong", { lang: "de" }, got || "(nothing)"), " ", verdict);
    byId("cost").textContent = `${translator.size.toLocaleString("en")} parameters computed this in your browser in ${Math.max(1, Math.round(time))} ms.`;
    draw();
    reveal();
    performance.mark("translated");
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
    const { queries, keys } = KINDS[kind];
    const [asking, asked] = [queries(made), keys(made)];
    const rows = Math.max(asking.length, asked.length);
    const height = (i, among) => (rows - among) / 2 + i + 0.5;
    const left = asked.map((word, j) => make("li", { style: `top: ${height(j, asked.length) - 0.5}lh` }, word));
    const right = asking.map((word, i) => {
      const button = make("button", { type: "button" }, word);
      for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => point(i));
      return make("li", { style: `top: ${height(i, asking.length) - 0.5}lh` }, button);
    });
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 1 ${rows}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    mapOf(head).forEach((row, i) =>
      row.forEach((weight, j) => {
        if (weight < FEWEST_DRAWN) return;
        const [from, to] = [height(i, asking.length), height(j, asked.length)];
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("d", `M1 ${from}C.5 ${from} .5 ${to} 0 ${to}`);
        path.style.strokeWidth = `${0.5 * weight}rem`;
        path.style.opacity = 0.2 + 0.7 * weight;
        path.dataset.query = i;
        svg.append(path);
      }),
    );
    picture.style.height = `${rows}lh`;
    picture.replaceChildren(make("ul", { class: "keys", "aria-label": "Looked at" }, ...left), svg, make("ul", { class: "queries", "aria-label": "Looking" }, ...right));
    const maps = made.weights[kind].map((map, h) => {
      const canvas = make("canvas", { width: asked.length, height: asking.length });
      const button = make("button", { type: "button", "aria-pressed": String(h === head) }, make("span", {}, nameOf(h)), canvas, make("span", { class: "most" }));
      button.addEventListener("click", () => {
        head = h;
        draw();
        finish();
        heads.children[h].focus();
      });
      return button;
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
      draw();
      finish();
    });
  field.addEventListener("input", translate);
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    field.value = Math.floor(Math.random() * 100_000);
    translate();
  });
  byId("theme").addEventListener("click", () => setTimeout(paint));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  byId("live").hidden = false;
  translate();
});
