// What the scripts of every page use: its elements, and what the browser keeps.
"use strict";

const byId = (id) => document.getElementById(id);

// An element with attributes and children. A string among the children becomes text, never markup.
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// A button that does something when it is pressed. label: a text, or all that stands in it.
function makeButton(label, action, attributes = {}) {
  const made = make("button", { type: "button", ...attributes }, ...[label].flat());
  made.addEventListener("click", action);
  return made;
}

// What the reader has written and chosen, kept by the browser under names of our own.
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
