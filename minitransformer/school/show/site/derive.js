// An exercise on paper: a field, and below it each line as mathematics with its verdict.
"use strict";

whenShown(() => {
  const article = document.querySelector("article[data-derive]");
  if (!article) return;
  const name = article.dataset.derive;
  const [button, verdict, list] = [byId("check"), byId("verdict"), article.querySelector("ol.derivation")];
  const words = { right: "right", wrong: "wrong", follows: "follows from the mistake", unreadable: "cannot be read", defines: "defines a name", given: "given" };
  let asked = ""; // the text that is being checked
  let pause = 0;

  const item = ({ number, text, verdict: found, mark, said, formula }) => {
    const shown = formula
      ? new DOMParser().parseFromString(formula, "text/html").body.firstChild // MathML, which Python has made of what it read
      : make("code", {}, text);
    const sign = make("span", { class: found === "right" ? "right" : "wrong", "aria-hidden": "true" }, mark || "·");
    const row = make("div", { class: "math block", tabindex: "0", role: "group", "aria-label": `Line ${number}, ${words[found]}` }, sign, " ", shown);
    return make("li", { value: String(number), "data-verdict": found }, row, ...said.map((sentence) => make("p", {}, sentence)));
  };

  const show = (output) => {
    const mark = output.right ? "✓ " : "";
    const first = output.lines.find((line) => line.verdict === "wrong" || line.verdict === "unreadable");
    const told = [...output.said, ...(first ? [`Line ${first.number}: ${first.said.at(-1)}`] : [])].join(" ");
    if (verdict.textContent !== mark + told) verdict.textContent = mark + told; // a screen reader reads what is new
    verdict.className = output.right ? "right" : "";
    list.replaceChildren(...output.lines.filter((line) => line.verdict !== "words" || line.said.length).map(item));
  };

  const check = async (quiet) => {
    clearTimeout(pause);
    const text = editor.area.value;
    if (asked === text && quiet) return;
    asked = text;
    const ended = await python.run({ derivation: name, text, quiet }, (output) => {
      if (editor.area.value !== text) return; // it has changed meanwhile
      show(output);
      if (!quiet) (list.querySelector("[data-verdict=wrong], [data-verdict=unreadable]") ?? verdict).scrollIntoView({ block: "nearest" });
      kept.set(`checked:${name}`, JSON.stringify({ code: text, output }));
    });
    if (!ended.problem) return;
    asked = "";
    verdict.textContent = ended.problem;
  };

  const editor = edit(article.querySelector("pre.code"), "Your derivation", `exercise:${name}`, () => check(false), (text) => `${text}\n`);
  editor.area.classList.add("tall");
  editor.onchange = () => {
    clearTimeout(pause);
    if (python.worker) pause = setTimeout(() => check(true), 700);
  };
  editor.area.addEventListener("focus", () => python.ahead(["minitransformer.course", "lark"]));
  button.hidden = false;
  button.addEventListener("click", () => check(false));

  const keys = article.querySelector(".keys");
  keys.hidden = false;
  keys.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus, and a telephone its keys
  keys.addEventListener("click", (event) => {
    const key = event.target.dataset.key;
    if (!key) return;
    const { area } = editor;
    area.setRangeText(key === "∑" ? "∑_" : key, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
    if (event.detail) area.focus(); // by the keyboard, the focus stays among the keys
  });

  const last = checked(name);
  if (last?.code === editor.area.value && last.output.lines) show(last.output);
});
