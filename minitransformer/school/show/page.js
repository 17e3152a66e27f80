// The tools of every page with numbers: its data, switches, large text, dark or light, list of keys.

const data = JSON.parse(byId("data").textContent);

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
function chosen(id) {
  if (new URLSearchParams(location.hash.slice(1)).has(id === "theme" ? "dark" : id)) return true;
  const text = kept.get(id);
  return text && (text === "dark" || text === "large");
}

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
    const before = chosen(id);
    if (typeof before === "boolean") change(setPressed(id, before));
    switches[id] = (on) => {
      change(on);
      kept.set(id, id === "theme" ? (on ? "dark" : "light") : on ? "large" : "normal");
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
