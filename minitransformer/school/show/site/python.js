// Python in a worker: one for each page and for the exercises that open in it, started when it is first needed. To stop it
// is to end the worker.
"use strict";

const python = {
  worker: null,
  current: null, // what is running: {onOutput, resolve}
  waiting: Promise.resolve(),
  begun: false,
  ends: 0, // how often Python has ended
  ended: "", // why, the last time
  has: new Set(["minitransformer", "numpy"]), // the packages that are loaded, or being loaded
  next: "cell", // what Python restarts with
  restarted: () => {}, // called when the names of all cells are gone

  // Run one request, {code, number} or {code, exercise}, after those before it. number: of the cell, for tracebacks.
  // what: names what is running, for the status line. onSecond: called each second with the seconds so far. Resolves to
  // {done, problem, seconds}. A request that is quiet, {derivation, text, quiet}, leaves the status line alone.
  run(request, onOutput, what = "", onSecond = () => {}) {
    const { ends } = this;
    const turn = this.waiting.then(async () => {
      // What waited while Python ended does not run, for the same reason.
      if (ends !== this.ends) return { done: false, problem: this.ended };
      if (!this.worker) {
        const begun = await this.start();
        if (!begun.done) return begun;
      }
      const began = performance.now();
      const clock = request.quiet ? 0 : saying(`Python is running ${what} …`.replace("  ", " "), onSecond);
      const ended = await this.ask(request, onOutput);
      clearInterval(clock);
      if (this.worker && !request.quiet) say("");
      return { ...ended, seconds: (performance.now() - began) / 1000 };
    });
    this.waiting = turn.catch(() => {});
    return turn;
  },

  // Start Python before it is needed: the reader has touched a cell, and starting takes seconds. modules: to import.
  ahead(modules) {
    if (this.worker || this.begun || location.protocol === "file:") return;
    this.begun = true;
    this.run({ code: modules.length ? `import ${modules}` : "" }, () => {});
  },

  async start() {
    this.begun = true;
    if (location.protocol === "file:")
      return { done: false, problem: "Python runs only on pages from a server: in the site's folder, run python -m http.server and open the address that it prints." };
    const away = settings.pyodide.includes("://");
    this.has = new Set(["minitransformer", "numpy"]);
    const clock = saying(`Python is loaded${away ? " from the internet, once" : ""}, ${megabytes(this.has)}, and starts, which takes a few seconds …`);
    this.worker = new Worker(`${settings.root}worker.js`);
    this.worker.onmessage = ({ data }) => {
      if (data.imports) this.tellLoading(data.imports);
      else if (data.output) this.current?.onOutput(data.output);
      else this.current?.resolve(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.current?.resolve({ done: false, problem: event.message });
    };
    const begun = await this.ask({ start: { ...settings, root: new URL(settings.root, location.href).href } }, () => {});
    clearInterval(clock);
    if (begun.done || !this.worker) return begun;
    this.ended = `Python could not be loaded from ${settings.pyodide}: ${begun.problem}.${away ? " Running code needs the internet once: connect, and try again." : ""} Everything on the page except running code works without it.`;
    this.end();
    say("");
    return { done: false, problem: this.ended };
  },

  ask(request, onOutput) {
    return new Promise((resolve) => {
      this.current = { onOutput, resolve };
      this.worker.postMessage(request);
    });
  },

  // Code is about to run that imports these packages: say which of the large ones are loaded first.
  tellLoading(names) {
    const missing = names.filter((name) => name in settings.sizes && !this.has.has(name));
    for (const name of missing) this.has.add(name);
    if (missing.length) say(`Python loads ${missing.join(" and ")}, ${megabytes(missing)}, and runs …`);
  },

  end() {
    this.ends += 1;
    this.worker?.terminate();
    this.worker = null;
    this.restarted();
  },

  stop() {
    const { current } = this;
    if (!this.worker) return;
    this.ended = "Stopped.";
    this.end();
    say(`Stopped. Python restarts with the next ${this.next}.`);
    current?.resolve({ done: false, problem: this.ended });
  },
};

const megabytes = (names) => `about ${[...names].reduce((sum, name) => sum + settings.sizes[name], 0)} MB`;

function say(text) {
  byId("python").textContent = text;
  byId("elapsed").textContent = "";
  byId("stop").hidden = !text.endsWith("…");
}

// Show a text, and beside it the seconds, until the clock that this returns is stopped. The seconds are not read aloud.
function saying(text, onSecond = () => {}) {
  const began = performance.now();
  say(text);
  return setInterval(() => {
    const seconds = Math.round((performance.now() - began) / 1000);
    byId("elapsed").textContent = `${seconds} s`;
    onSecond(seconds);
  }, 1000);
}

// The line at the lower edge that says what Python does, with the button that stops it.
document.addEventListener("DOMContentLoaded", () => {
  const stop = makeButton("Stop", () => python.stop(), { id: "stop", hidden: true });
  byId("main-text").append(make("div", { class: "running" }, make("span", { id: "python", role: "status" }), make("span", { id: "elapsed", class: "note", "aria-hidden": "true" }), stop));
});

// ---- Outputs, as in an .ipynb. Text is shown as text. HTML gets a frame that reaches nothing of this page. ----

const FRAME_STYLE = "body{margin:0;font:15px/1.45 system-ui,sans-serif}table{border-spacing:2px}";
const TELL_HEIGHT =
  "<script>new ResizeObserver(()=>parent.postMessage({height:document.documentElement.offsetHeight},'*'))" +
  ".observe(document.documentElement)</" + "script>";

function showOutput(box, output) {
  const data = output.data ?? {};
  if (output.output_type === "stream") {
    const last = box.lastElementChild;
    if (last?.dataset.stream === output.name) last.textContent += output.text;
    else box.append(make("pre", { "data-stream": output.name, tabindex: "0" }, output.text));
  } else if (output.output_type === "error") {
    box.append(make("pre", { class: "error", tabindex: "0" }, output.traceback.join("")));
  } else if (output.output_type === "verdict") {
    const mark = make("span", { class: output.right ? "right" : "wrong" }, output.right ? "✓" : "✗");
    const said = output.said.map((text, i) => make("p", {}, make("strong", {}, ...(i ? [] : [mark, " "]), text)));
    const details = output.details ? [make("pre", { tabindex: "0" }, output.details)] : [];
    box.append(make("div", { class: "verdict" }, ...said, ...details));
  } else if (data["image/png"]) {
    const alt = output.metadata?.["image/png"]?.alt ?? "The picture that this cell draws";
    box.append(make("img", { src: `data:image/png;base64,${data["image/png"]}`, alt }));
  } else if (data["text/html"]) {
    const page = `<!DOCTYPE html><meta name="color-scheme" content="light dark"><style>${FRAME_STYLE}</style>`;
    const frame = make("iframe", { sandbox: "allow-scripts", title: "Output of the cell", srcdoc: page + data["text/html"] + TELL_HEIGHT });
    const resize = (event) => {
      if (event.source === frame.contentWindow && event.data?.height > 0)
        frame.style.height = `${Math.min(Number(event.data.height) + 8, 900)}px`;
    };
    addEventListener("message", resize);
    box.append(frame);
  } else {
    box.append(make("pre", { tabindex: "0" }, data["text/plain"] ?? ""));
  }
}
