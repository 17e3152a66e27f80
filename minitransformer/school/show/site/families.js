"use strict";
// Two families side by side: each box of figure 1, and whether both put the same parts into it.
(() => {
  const { boxes, families } = JSON.parse(document.getElementById("families").textContent);
  const chosen = ["one", "other"].map((id) => document.getElementById(id));
  const BEFORE = ["embeds", "positions"], AFTER = ["ends", "predicts"]; // the other boxes are those of each layer

  function element(name, text = "", into = null, kind = "") {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    into?.append(made);
    return made;
  }

  // The sides that belong together: those of one name, then the others in their order. A family with one has it for all.
  function pairs(ones, others) {
    const left = [...others];
    const take = (found) => (found < 0 ? null : left.splice(found, 1)[0]);
    const named = ones.map((side) => [side, take(left.findIndex((other) => other.name === side.name))]);
    const paired = named.map(([side, other]) => [side, other ?? left.shift() ?? null]);
    return [...paired, ...left.map((other) => [null, other])];
  }

  function held(entries, into) {
    if (!entries.length) element("p", "nothing", into, "note");
    for (const { layers, parts, lines } of entries) {
      const told = element("p", layers ? `${layers}: ` : "", into);
      if (!parts.length && !lines.length) told.append("nothing");
      parts.forEach(([name, address], i) => {
        if (i) told.append(", ");
        const into = address ? element("a", "", told) : told;
        if (address) into.href = address;
        name.split(/(?=[A-Z][a-z])/).forEach((word, n) => into.append(...(n ? [element("wbr"), word] : [word])));
      });
      for (const line of lines) element("code", line, told);
    }
  }

  // One box; returns whether the families differ in it, or null if neither has it.
  function box(key, label, sides, names, list) {
    const found = sides.map((side) => side?.boxes[key] ?? []);
    if (!found.some((entries) => entries.length)) return null;
    const differs = JSON.stringify(found[0]) !== JSON.stringify(found[1]);
    const item = element("li", "", list, differs ? "differs" : "same");
    const heading = element("h4", `${label} `, item);
    element("span", differs ? "differs" : "the same", heading, "note");
    const both = element("dl", "", item);
    (differs ? [0, 1] : [0]).forEach((i) => {
      const one = element("div", "", both);
      element("dt", differs ? names[i] : `${names[0]} and ${names[1]}`, one);
      held(found[i], element("dd", "", one));
    });
    return differs;
  }

  function show() {
    const names = chosen.map((select) => select.value);
    const figure = document.getElementById("figure");
    figure.replaceChildren();
    const differing = [], lacking = [];
    let all = 0;
    const found = pairs(...names.map((name) => families[name]));
    for (const sides of found) {
      const titles = [...new Set(sides.filter(Boolean).map((side) => side.name))].join(" and ");
      const alone = sides.includes(null);
      element("h3", alone ? `${titles}, of ${names[sides.indexOf(null) ? 0 : 1]} alone` : titles, figure);
      if (alone) lacking.push(`${names[sides.indexOf(null)]} has no ${titles}.`);
      const parts = [["Before the layers", BEFORE], ["Each layer", null], ["After the layers", AFTER]];
      for (const [title, keys] of parts) {
        const group = element("section", "", null, keys ? "" : "layer");
        element("p", title, group, "note");
        const list = element("ol", "", group, "boxes");
        list.setAttribute("role", "list"); // without its numbers some screen readers would not call it one
        for (const [key, label] of boxes) {
          if (keys ? !keys.includes(key) : [...BEFORE, ...AFTER].includes(key)) continue;
          const differs = box(key, label, sides, names, list);
          if (alone || differs === null) continue;
          all += 1;
          if (differs) differing.push(found.length > 1 ? `${label} (${titles})` : label);
        }
        if (list.children.length) figure.append(group);
      }
    }
    const told = differing.length ? `${differing.length} of ${all} boxes differ: ${differing.join("; ")}.`
      : names[0] === names[1] ? "This is one family twice."
        : `All ${all} boxes have the same parts. What else differs are sizes, numbers, or the files.`;
    document.getElementById("differ").textContent = [told, ...lacking].join(" ");
    history.replaceState(null, "", `#${names.join("/")}`);
  }

  function fromAddress() {
    decodeURIComponent(location.hash.slice(1)).split("/").forEach((name, i) => {
      if (chosen[i] && Object.hasOwn(families, name)) chosen[i].value = name;
    });
  }

  document.getElementById("compare").hidden = false;
  fromAddress();
  show();
  for (const select of chosen) select.addEventListener("change", show);
  addEventListener("hashchange", () => { fromAddress(); show(); });
})();
