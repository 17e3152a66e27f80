// What every page of the site has: its settings, the theme, the search, keys.

const settings = JSON.parse(document.documentElement.dataset.settings);

// Call a function when the content of the page is there, and each time when another takes its place (exercise.js).
function whenShown(show) {
  for (const event of ["DOMContentLoaded", "shown"]) document.addEventListener(event, show);
}

function showTheme() {
  const theme = kept.get("theme");
  if (theme) document.documentElement.dataset.theme = theme;
}
showTheme();

// The search of the header shows what it finds below its field. The first visit there loads the index.
function addSearch(form) {
  const field = form.querySelector("input");
  const [count, results] = [make("p", { role: "status" }), make("ul")];
  form.append(make("div", { class: "found" }, count, results));
  const close = () => {
    count.textContent = "";
    results.replaceChildren();
  };
  const load = (name) => new Promise((done) => {
    const script = make("script", { src: settings.root + name });
    script.addEventListener("load", done);
    document.head.append(script);
  });
  let find = null;
  field.addEventListener("focus", async () => {
    if (find) return find();
    find = () => {};
    if (typeof searching === "undefined") {
      await load("index.js");
      await load("search.js");
    }
    find = searching(field, results, count, 8, true);
    if (field.value && form.contains(document.activeElement)) find();
  });
  form.addEventListener("focusout", (event) => form.contains(event.relatedTarget) || close());
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.focus();
    close();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const button = byId("theme");
  const dark = () => (kept.get("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => (button.textContent = dark() ? "Light" : "Dark");
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    kept.set("theme", dark() ? "light" : "dark");
    showTheme();
    name();
  });
  addSearch(document.querySelector("header form"));
  const unfold = (hash) => {
    const part = hash && byId(decodeURIComponent(hash.slice(1)))?.closest("details");
    if (part) part.open = true;
  };
  addEventListener("hashchange", () => unfold(location.hash));
  addEventListener("click", (event) => unfold(event.target.closest("a")?.hash)); // the address may have it already
  unfold(location.hash);
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("header input[type=search]").focus();
    }
  });
});
