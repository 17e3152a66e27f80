// The tools of every page: its data, functions that make elements, switches, large text, dark or light, list of keys.

const data = JSON.parse(document.getElementById("data").textContent);
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

// Little-endian numbers of 4 or 8 bytes, in base64. Every machine with a browser has this byte order.
function floats(text, Kind = Float32Array) {
  return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

// The colours of numbers above and below 0, [red, green, blue]; the dark page has others than the light one.
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

// Text size and colours as the reader chose them on any page of this origin; an address with &large or &dark comes first.
const kept = {
  get(id) {
    if (new URLSearchParams(location.hash.slice(1)).has(id === "theme" ? "dark" : id)) return true;
    const text = this.text(id);
    return text && (text === "dark" || text === "large");
  },
  set(id, on) {
    this.write(id, id === "theme" ? (on ? "dark" : "light") : on ? "large" : "normal");
  },
  text(id) {
    try {
      return localStorage.getItem(`minitransformer:${id}`);
    } catch {
      return null; // the browser keeps nothing, as in some private windows
    }
  },
  write(id, text) {
    try {
      localStorage.setItem(`minitransformer:${id}`, text);
    } catch {
      /* as above */
    }
  },
};

function setPressed(id, on) {
  byId(id).setAttribute("aria-pressed", String(on));
  return on;
}

function toggle(id) {
  switches[id](setPressed(id, byId(id).getAttribute("aria-pressed") !== "true"));
}

const telephone = matchMedia("(max-width: 37.5rem)");

// own: the switches of this page; redraw: called after text size or colours change.
function addTools(own, redraw) {
  setPressed("theme", matchMedia("(prefers-color-scheme: dark)").matches);
  for (const id of ["large", "theme"]) {
    const change = switches[id];
    const before = kept.get(id);
    if (typeof before === "boolean") change(setPressed(id, before));
    switches[id] = (on) => {
      change(on);
      kept.set(id, on);
      redraw();
    };
  }
  Object.assign(switches, own);
  for (const id of Object.keys(switches)) byId(id).addEventListener("click", () => toggle(id));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("print").addEventListener("click", () => window.print());
  byId("title").textContent = data.title;
  const fold = () => (byId("view").open = !telephone.matches);
  telephone.addEventListener("change", fold);
  fold();
  readColours();
  for (const change of ["print", "(prefers-color-scheme: dark)"]) // paper is light; in the evening a system turns dark
    matchMedia(change).addEventListener("change", () => {
      readColours();
      redraw();
    });
}
