// What every page has: its data, the making of elements, switches, large text, dark or light, and the list of keys.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// An element with attributes and children; a text becomes a text, never markup.
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

// Little-endian numbers of 4 or 8 bytes, in base64.
function floats(text, size = 4) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const number = (_, i) => (size === 4 ? view.getFloat32(4 * i, true) : view.getFloat64(8 * i, true));
  return (size === 4 ? Float32Array : Float64Array).from({ length: bytes.length / size }, number);
}

// The colours of numbers above and below 0, [red, green, blue], which depend on light or dark.
let above, below;
function readColours() {
  [above, below] = ["--above", "--below"].map((name) => {
    const probe = make("span", { style: `color: var(${name})` });
    document.body.append(probe);
    const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    probe.remove();
    return parts;
  });
}

// ---- Switches: buttons that are on or off. ----

const switches = {
  large: (on) => document.documentElement.classList.toggle("large", on),
  theme: (on) => {
    document.documentElement.dataset.theme = on ? "dark" : "light";
    readColours();
  },
};

function setPressed(id, on) {
  byId(id).setAttribute("aria-pressed", String(on));
  return on;
}

function toggle(id) {
  switches[id](setPressed(id, byId(id).getAttribute("aria-pressed") !== "true"));
}

// own: the switches of this page; redraw: what to do after a change of the looks.
function addTools(own, redraw) {
  for (const id of ["large", "theme"]) {
    const change = switches[id];
    switches[id] = (on) => {
      change(on);
      redraw();
    };
  }
  Object.assign(switches, own);
  for (const id of Object.keys(switches)) byId(id).addEventListener("click", () => toggle(id));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("print").addEventListener("click", () => window.print());
  byId("title").textContent = data.title;
  setPressed("theme", matchMedia("(prefers-color-scheme: dark)").matches);
  readColours();
}
