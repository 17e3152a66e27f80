// Annotated code: pointing at a name lights up the name, its gradient, and the lines that compute both.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const notes = JSON.parse(byId("notes").textContent);
  const line = byId("name");
  let pinned = null;

  function light(word) {
    for (const lit of document.querySelectorAll(".lit, .lit-gradient")) lit.classList.remove("lit", "lit-gradient");
    line.textContent = "";
    if (!word) return;
    const scope = word.closest("section.function");
    const value = scope.querySelector(`[data-name="${word.dataset.name}"]`) && baseOf(scope, word.dataset.name);
    for (const [name, kind] of [[value, "lit"], [`d${value}`, "lit-gradient"]])
      for (const each of scope.querySelectorAll(`[data-name="${name}"], [data-binds~="${name}"]`)) each.classList.add(kind);
    const told = notes[scope.id] ?? {};
    const parts = [value, `d${value}`].filter((name) => scope.querySelector(`[data-name="${name}"]`));
    line.textContent = parts.map((name) => (told[name] ? `${name} ${told[name]}` : name)).join("   ·   gradient: ");
  }

  // dscores belongs to scores, if the function has both.
  function baseOf(scope, name) {
    const value = name.slice(1);
    return name[0] === "d" && value && scope.querySelector(`[data-name="${value}"]`) ? value : name;
  }

  const wordAt = (event) => event.target.closest?.("[data-name]") ?? null;
  document.addEventListener("pointerover", (event) => pinned ?? light(wordAt(event)));
  document.addEventListener("focusin", (event) => pinned ?? light(wordAt(event)));
  document.addEventListener("click", (event) => {
    const word = wordAt(event);
    pinned = word === pinned ? null : word;
    light(pinned ?? word);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") light((pinned = null));
    if (event.key === "Enter" && wordAt(event)) wordAt(event).click();
  });
});
