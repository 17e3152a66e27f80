// The search, while one types: places with all words first, then those with the most; words in a title, or in another name
// of its subject, count most, then words of a chapter, then words of its code. Chapters come before exercises and steppers,
// these before code, and all that students read before the pages of teachers. Small words of a question do not count.
"use strict";

{ // names of its own, whatever the other scripts of a page are
  const PAUSE = 150; // milliseconds without a key before the results are shown and counted aloud
  const AROUND = 90; // characters of a text on each side of a word that was found
  const WHOLE = 20; // points for the words in a row
  const NAMED = 5.9; // points of a thing that has exactly this name: after the chapters, before the rest
  const KINDS = { chapters: 1.5, exercises: 1.3, steppers: 1.3 }; // by how much points of titles count more
  const SMALL = new Set("a an and are between by do does for how in is it of or the to versus vs what when why with".split(" "));
  const norm = (text) => text.toLowerCase().normalize("NFKD").replaceAll(/[_\p{Pd}]/gu, " "); // multi-head is multi head
  const rows = INDEX.map(([address, title, text, names, code], i) => ({
    kind: address.split("/")[0], first: address.startsWith("chapters/") ? i - INDEX.length : title.length, // if points are equal
    address, title, text, head: norm(`${title} ${names}`), body: norm(text), code: norm(code), last: address.startsWith("teachers/"),
  }));
  const says = (row, word) => row.head.includes(word) || row.body.includes(word) || row.code.includes(word);
  const wordsOf = (text) => {
    const all = [...new Set(norm(text).split(/\s+/).map((word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "")).filter(Boolean))];
    return all.some((word) => !SMALL.has(word)) ? all.filter((word) => !SMALL.has(word)) : all; // "why divide by d": divide d
  };

  // Show in a list what is typed into a field, at most so many places, and say in an element how many there are. pages: show
  // the best place of each page alone. The arrow keys lead from the field through the list and back.
  globalThis.searching = function (field, results, count, most, pages = false) {
    function find() {
      const words = wordsOf(field.value);
      // A word that is in few places says more about the place that is meant.
      const whole = words.length > 1 && norm(field.value).trim();
      const rarity = new Map(words.map((word) => [word, Math.log(1 + rows.length / (1 + rows.filter((row) => says(row, word)).length))]));
      const judged = rows.map((row) => {
        const has = words.filter((word) => says(row, word));
        let points = has.reduce((sum, word) => sum + rarity.get(word) * (row.head === word || row.address.endsWith(`#${word}`) ? NAMED : row.head.includes(word) ? 4 * (KINDS[row.kind] ?? 1) : row.body.includes(word) ? 1 : 0.5), 0);
        if (whole && (row.body.includes(whole) || row.head.includes(whole))) points += WHOLE;
        return { row, n: has.length, points, weight: has.reduce((sum, word) => sum + rarity.get(word), 0) };
      });
      const all = judged.filter(({ n }) => words.length && n === words.length);
      const part = judged.filter(({ n }) => n && n >= words.length / 2);
      const found = all.length ? all : part;
      found.sort((a, b) => a.row.last - b.row.last || (all.length ? b.points - a.points : b.weight - a.weight || b.points - a.points) || a.row.first - b.row.first);
      const best = new Map([...found].reverse().map((one) => [one.row.address.split("#")[0], one]));
      const shown = (pages ? found.filter((one) => best.get(one.row.address.split("#")[0]) === one) : found).slice(0, most);
      const told = found.length > shown.length ? `${found.length} found, the best ${shown.length} shown` : `${found.length} found`;
      count.textContent = !words.length ? "" : all.length ? told : found.length ? "No place has all of these words. These have the most:" : "Nothing found";
      results.replaceChildren(
        ...shown.map(({ row }) =>
          make("li", {}, make("a", { href: settings.root + row.address }, row.title), make("p", {}, ...excerpt(row.text, words, rarity))),
        ),
      );
      results.dataset.question = field.value;
    }

    // The text around the whole question or else the rarest of its words, with all of its words marked.
    function excerpt(text, words, rarity) {
      const lower = text.toLowerCase();
      const rarest = words.filter((word) => lower.includes(word)).sort((a, b) => rarity.get(b) - rarity.get(a))[0] ?? "";
      const whole = field.value.trim().toLowerCase();
      const at = lower.includes(whole) ? lower.indexOf(whole) : lower.indexOf(rarest);
      const [from, to] = [Math.max(0, at - AROUND), at + Math.max(whole.length, rarest.length) + AROUND];
      const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
      const parts = words.length ? text.slice(from, to).split(new RegExp(`(${escaped.join("|")})`, "iu")) : [text.slice(from, to)];
      return [from ? "… " : "", ...parts.map((part, i) => (i % 2 ? make("mark", {}, part) : part)), to < text.length ? " …" : ""];
    }

    let waiting = null;
    const now = () => {
      clearTimeout(waiting);
      waiting = null;
      find();
    };
    field.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(now, PAUSE);
    });
    const move = (event) => {
      if (waiting && event.key === "ArrowDown") now(); // later it would replace the place that has the focus
      const places = [field, ...results.querySelectorAll("a")];
      const next = places[places.indexOf(event.target) + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    };
    field.addEventListener("keydown", move);
    results.addEventListener("keydown", move);
    return find;
  };

  document.addEventListener("DOMContentLoaded", () => {
    const field = byId("question");
    if (!field) return;
    field.value = new URLSearchParams(location.search).get("q") ?? "";
    searching(field, byId("results"), byId("count"), 40)();
  });
}
