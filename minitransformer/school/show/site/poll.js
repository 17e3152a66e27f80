// A class raises letters, the lecturer types how many, and a bar shows each. Nothing is sent or kept.
// On a slide without choices the lecturer also types what the class says: three answers.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button.poll")) {
    const lists = [...button.closest("form, article, .polls").querySelectorAll("ol.options")];
    button.hidden = !lists.length && !button.closest(".polls");
    button.addEventListener("click", () => {
      button.hidden = true;
      if (!lists.length) lists.push(said(button));
      for (const list of lists) count(list);
      lists[0].querySelector("input").focus();
      dispatchEvent(new Event("resize")); // a slide fits itself
    });
  }

  function said(button) {
    const list = make("ol", { class: "options" });
    for (const letter of "ABC") list.append(make("li", {}, make("input", { "aria-label": `What ${letter} stands for` })));
    button.before(list);
    return list;
  }

  function count(list) {
    const rows = [...list.children].map((item, i) => {
      const field = make("input", { type: "number", min: "0", "aria-label": `Hands for ${String.fromCharCode(65 + i)}` });
      const bar = make("span", { class: "amount", "aria-hidden": "true" });
      const share = make("span", { class: "note" });
      item.append(make("div", { class: "hands" }, field, bar, share));
      return { field, bar, share };
    });
    list.hidden = false;
    list.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault()); // it would send the form
    list.addEventListener("input", () => {
      const hands = rows.map(({ field }) => Math.max(0, Math.round(Number(field.value))));
      const all = hands.reduce((sum, n) => sum + n, 0);
      rows.forEach(({ bar, share }, i) => {
        bar.style.width = `${all ? (15 * hands[i]) / all : 0}rem`;
        share.textContent = all ? `${Math.round((100 * hands[i]) / all)} % of ${all}` : "";
      });
    });
  }
});
