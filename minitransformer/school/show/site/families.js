"use strict";
// Two families side by side: each box of figure 1, and whether both put the same parts into it.
(() => {
  const { boxes, families } = JSON.parse(byId("families").textContent);
  const chosen = ["one", "other"].map((id) => byId(id));
  const BEFORE = ["embeds", "positions"], AFTER = ["ends", "predicts"]; // the other boxes are those of each layer

  // The sides that belong together: those of one name, then the others in their order. A family with one has it for all.
  function pairs(ones, others) {
    const left = [...others];
    const take = (found) => (found < 0 ? null : left.splice(found, 1)[0]);
    const named = ones.map((side) => [side, take(left.findIndex((other) => other.name === side.name))]);
    const paired = named.map(([side, other]) => [side, other ?? left.shift() ?? null]);
    return [...paired, ...left.map((other) => [null, other])];
  }

  // A name may break before each of its words.
  const broken = (name) => name.split(/(?=[A-Z][a-z])/).flatMap((word, n) => (n ? [make("wbr"), word] : [word]));

  function held(entries) {
    if (!entries.length) return [make("p", { class: "note" }, "nothing")];
    return entries.map(({ layers, parts, lines }) => {
      const links = parts.map(([name, href]) => (href ? [make("a", { href }, ...broken(name))] : broken(name)));
      const told = links.flatMap((link, i) => (i ? [", ", ...link] : link));
      if (!parts.length && !lines.length) told.push("nothing");
      return make("p", {}, layers ? `${layers}: ` : "", ...told, ...lines.map((line) => make("code", {}, line)));
    });
  }

  // One box, and whether the families differ in it; null if neither has it.
  function box(key, label, sides, names) {
    const found = sides.map((side) => side?.boxes[key] ?? []);
    if (!found.some((entries) => entries.length)) return null;
    const differs = JSON.stringify(found[0]) !== JSON.stringify(found[1]);
    const heading = make("h4", {}, `${label} `, make("span", { class: "note" }, differs ? "differs" : "the same"));
    const titles = differs ? names : [names.join(" and ")];
    const both = titles.map((title, i) => make("div", {}, make("dt", {}, title), make("dd", {}, ...held(found[i]))));
    return { differs, label, item: make("li", { class: differs ? "differs" : "same" }, heading, make("dl", {}, ...both)) };
  }

  function show() {
    const names = chosen.map((select) => select.value);
    const figure = byId("figure");
    figure.replaceChildren();
    const differing = [], lacking = [];
    let all = 0;
    const found = pairs(...names.map((name) => families[name]));
    for (const sides of found) {
      const titles = [...new Set(sides.filter(Boolean).map((side) => side.name))].join(" and ");
      const alone = sides.includes(null);
      figure.append(make("h3", {}, alone ? `${titles}, of ${names[sides.indexOf(null) ? 0 : 1]} alone` : titles));
      if (alone) lacking.push(`${names[sides.indexOf(null)]} has no ${titles}.`);
      const parts = [["Before the layers", BEFORE], ["Each layer", null], ["After the layers", AFTER]];
      for (const [title, keys] of parts) {
        const inside = boxes.filter(([key]) => (keys ? keys.includes(key) : ![...BEFORE, ...AFTER].includes(key)));
        const made = inside.map(([key, label]) => box(key, label, sides, names)).filter(Boolean);
        if (!alone) all += made.length;
        if (!alone) differing.push(...made.filter(({ differs }) => differs).map(({ label }) => (found.length > 1 ? `${label} (${titles})` : label)));
        // Without its numbers some screen readers would not call it a list: so it says that it is one.
        const list = make("ol", { class: "boxes", role: "list" }, ...made.map(({ item }) => item));
        if (made.length) figure.append(make("section", { class: keys ? null : "layer" }, make("p", { class: "note" }, title), list));
      }
    }
    const told = differing.length ? `${differing.length} of ${all} boxes differ: ${differing.join("; ")}.`
      : names[0] === names[1] ? "This is one family twice."
        : `All ${all} boxes have the same parts. What else differs are sizes, numbers, or the files.`;
    byId("differ").textContent = [told, ...lacking].join(" ");
    history.replaceState(null, "", `#${names.join("/")}`);
  }

  function fromAddress() {
    decodeURIComponent(location.hash.slice(1)).split("/").forEach((name, i) => {
      if (chosen[i] && Object.hasOwn(families, name)) chosen[i].value = name;
    });
  }

  byId("compare").hidden = false;
  fromAddress();
  show();
  for (const select of chosen) select.addEventListener("change", show);
  addEventListener("hashchange", () => { fromAddress(); show(); });
})();
