// An exercise: an editor, and the verdict of course.check beside it. The next one opens in the same page, since Python would
// start anew on another.
"use strict";

whenShown(() => {
  const article = document.querySelector("article[data-exercise]");
  if (!article) return; // the list of all
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
      verdict.append(make("p", { class: "error" }, ended.problem, " ", makeButton("Try again", check)));
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

// ---- From one exercise to another, or to their list. The address and the history are those of pages. ----

{
  python.next = "check";
  const folder = new URL(`${settings.root}exercises/`, location.href).href;
  let shown = location.pathname;
  history.scrollRestoration = "manual"; // the browser would scroll before the content is there

  // Put the content of another page in the place of this one's, and scroll to a height.
  async function turn(address, height) {
    shown = new URL(address).pathname;
    const asked = shown;
    const answer = await fetch(address).catch(() => null);
    if (asked !== shown) return; // the reader was quicker
    if (!answer?.ok) return location.reload(); // the browser says what is wrong
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = byId("main-text");
    const running = main.querySelector(".running"); // what Python does goes on
    main.replaceChildren(...page.querySelector("main").childNodes, running);
    document.title = page.title;
    editors.clear();
    document.dispatchEvent(new Event("shown"));
    main.focus({ preventScroll: true });
    scrollTo(0, height);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const plain = !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!python.worker || !plain || !link?.href.startsWith(folder) || link.hash) return;
    event.preventDefault();
    history.replaceState({ height: scrollY }, "");
    history.pushState({ height: 0 }, "", link.href);
    turn(link.href, 0);
  });
  addEventListener("popstate", (event) => {
    if (location.pathname !== shown) turn(location.href, event.state?.height ?? 0);
  });
}
