// Python, away from the page: however long a cell runs, the page answers.
"use strict";

let python, imports, cells, session;

async function start({ pyodide, wheel, root }) {
  const base = new URL(root, self.location.href);
  const index = new URL(pyodide, base).href;
  const fetched = fetch(new URL(wheel, base)); // while Python starts
  fetched.catch(() => {}); // told below
  try {
    importScripts(index + "pyodide.js");
  } catch (error) {
    throw error.name === "NetworkError" ? new Error("it cannot be reached") : error;
  }
  python = await loadPyodide({ indexURL: index, packages: ["numpy", "threadpoolctl"] });
  const file = await fetched;
  if (!file.ok) throw new Error(`${wheel} is missing on the server`);
  python.unpackArchive(await file.arrayBuffer(), "wheel");
  imports = python.pyimport("pyodide.code").find_imports;
  cells = python.pyimport("minitransformer.school.show.site.cell");
  session = cells.Session(send);
}

// Load the packages of the distribution that code imports, such as SciPy, when it is about to run.
async function load(code) {
  postMessage({ imports: imports(code).toJs() });
  await python.loadPackagesFromImports(code, { messageCallback: () => {} });
}

function send(output) {
  postMessage({ output: output.toJs({ dict_converter: Object.fromEntries }) });
}

self.onmessage = async ({ data }) => {
  try {
    if (data.start) await start(data.start);
    else if (data.derivation) cells.derive(data.derivation, data.text, send);
    else {
      await load(data.code);
      if (data.exercise) cells.check(data.exercise, data.code, send);
      else if (!session.run(data.code, data.number ?? 1)) throw null;
    }
    postMessage({ done: true });
  } catch (error) {
    postMessage({ done: false, problem: error ? String(error.message ?? error) : "" });
  }
};
