// How far the reader is: which exercises are begun, and which are right. A tick belongs to the code that was checked.
"use strict";

// The last verdict on an exercise, {code, output}, or null.
function checked(name) {
  try {
    const { code, output } = JSON.parse(kept.get(`checked:${name}`));
    return ["verdict", "error", "derivation"].includes(output.output_type) ? { code, output } : null;
  } catch {
    return null; // there is none, or it cannot be read
  }
}

function stateOf(name) {
  const code = kept.get(`exercise:${name}`);
  if (code === null) return "";
  const last = checked(name);
  return last?.output.right && last.code === code ? "right" : "begun";
}

function showProgress() {
  const line = byId("progress");
  if (!line) return;
  const all = JSON.parse(line.dataset.exercises).map(([name, title]) => ({ name, title, state: stateOf(name) }));
  const last = all.findLastIndex(({ state }) => state === "right");
  const open = ({ state }) => state !== "right";
  const next = all.find(({ state }) => state === "begun") ?? all.slice(last + 1).find(open) ?? all.find(open);
  line.hidden = all.every(({ state }) => !state);
  line.replaceChildren(`${all.filter(({ state }) => state === "right").length} of ${all.length} exercises right.`);
  if (next) line.append(" Continue with ", make("a", { href: `${settings.root}exercises/${next.name}.html` }, next.title), ".");
  for (const item of document.querySelectorAll("li[data-exercise]")) {
    const state = { right: "✓ right", begun: "begun", "": "" }[stateOf(item.dataset.exercise)];
    item.querySelector(".state").textContent = state;
  }
}

whenShown(showProgress);
document.addEventListener("work", showProgress); // other code was put into exercises
