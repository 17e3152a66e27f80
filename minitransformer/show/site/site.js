// What every page has: its settings, the theme, what is kept in the browser, keys.
"use strict";

const settings = JSON.parse(document.documentElement.dataset.settings);
const byId = (id) => document.getElementById(id);

// An element with attributes and children. A string among the children becomes text, never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// What the reader has written, kept by the browser under the site's own names.
const kept = {
  get(name) {
    try {
      return localStorage.getItem(`minitransformer:${name}`);
    } catch {
      return null; // the browser keeps nothing, as in some private windows
    }
  },
  set(name, text) {
    try {
      if (text === null) localStorage.removeItem(`minitransformer:${name}`);
      else localStorage.setItem(`minitransformer:${name}`, text);
      return true;
    } catch {
      return false;
    }
  },
};

function showTheme() {
  const theme = kept.get("theme");
  if (theme) document.documentElement.dataset.theme = theme;
}
showTheme();

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
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("header input[type=search]").focus();
    }
  });
});
