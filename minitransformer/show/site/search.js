// The search: every word must occur; words in a title count most.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const question = new URLSearchParams(location.search).get("q") ?? "";
  const field = byId("question");
  const results = byId("results");
  const norm = (text) => text.toLowerCase().normalize("NFKD").replaceAll("_", " ");
  const rows = INDEX.map(([address, title, text]) => ({ address, title, text, head: norm(title), body: norm(text) }));

  function find() {
    const words = norm(field.value).split(/\s+/).filter(Boolean);
    const score = (row) => {
      let sum = 0;
      for (const word of words) {
        const points = row.head === word ? 9 : row.head.includes(word) ? 4 : row.body.includes(word) ? 1 : 0;
        if (!points) return 0;
        sum += points;
      }
      return sum;
    };
    const found = words.length ? rows.map((row) => [score(row), row]).filter(([points]) => points) : [];
    found.sort((a, b) => b[0] - a[0] || a[1].title.length - b[1].title.length);
    byId("count").textContent = words.length ? `${found.length} found` : "";
    results.replaceChildren(
      ...found.slice(0, 40).map(([, row]) =>
        make("li", {}, make("a", { href: settings.root + row.address }, row.title), make("p", {}, row.text.slice(0, 180))),
      ),
    );
  }
  field.value = question;
  field.addEventListener("input", find);
  find();
});
