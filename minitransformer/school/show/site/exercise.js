// An exercise: an editor, and the verdict of course.check beside it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  python.packages = python.packages.filter((name) => name !== "matplotlib"); // nothing is drawn here: Python starts sooner
  python.next = "check";
  const article = document.querySelector("article[data-exercise]");
  const name = article.dataset.exercise;
  const verdict = byId("verdict");
  const button = byId("check");
  const reset = byId("reset");
  const stale = make("p", { class: "note" }, "Your code has changed since this check.");
  verdict.before(stale);
  let judged = null; // the code that the verdict shown is about
  let running = false;

  const check = async () => {
    if (running) return;
    running = true;
    button.setAttribute("aria-disabled", "true"); // disabling it would take the focus away
    const code = editor.area.value;
    judged = code;
    verdict.replaceChildren();
    const ended = await python.run({ code, exercise: name }, (output) => {
      showOutput(verdict, output);
      if (["verdict", "error"].includes(output.output_type)) kept.set(`checked:${name}`, JSON.stringify({ code, output }));
    });
    if (ended.problem) {
      const again = make("button", { type: "button" }, "Try again");
      again.addEventListener("click", check);
      verdict.append(make("p", { class: "error" }, ended.problem, " ", again));
    }
    running = false;
    button.removeAttribute("aria-disabled");
    show();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    verdict.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  };

  const editor = edit(article.querySelector("pre.code"), `Your function ${name}`, `exercise:${name}`, check);
  const show = () => {
    reset.hidden = editor.area.value === editor.original;
    stale.hidden = judged === null || judged === editor.area.value;
  };
  editor.onchange = show;
  editor.area.addEventListener("focus", () => python.ahead(["minitransformer.course"]));
  button.hidden = false;
  byId("print").hidden = false;
  byId("print").addEventListener("click", () => print());
  button.addEventListener("click", check);
  reset.addEventListener("click", () => replaceCode([[name, null]], "The original code is back."));

  const last = checked(name);
  if (last) {
    judged = last.code;
    showOutput(verdict, last.output);
  }
  show();
});
