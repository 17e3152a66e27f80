// What a notebook keeps of a page: {step, mistake, inputs, pressed}. The page tells it after every change, by an event of
// the document named "state", and takes it, or a part of it, by one named "restore".

const KEPT = ["predict", "code", "maps", "heat", "motion", "large", "theme"]; // switches

function pageState() {
  const fields = [...document.querySelectorAll("#inputs input")];
  return {
    step: parseInt(byId("counter").textContent),
    mistake: byId("mistake").dataset.name ?? "",
    inputs: byId("edited").hidden ? [] : fields.map((field) => field.value),
    pressed: KEPT.filter((id) => byId(id).getAttribute("aria-pressed") === "true"),
  };
}

function restorePage({ step, mistake, inputs, pressed }) {
  const told = (element, value) => {
    element.value = value;
    element.dispatchEvent(new Event("change", { bubbles: true }));
  };
  if (pressed)
    for (const id of KEPT) {
      if (pressed.includes(id) !== pageState().pressed.includes(id)) byId(id).click();
    }
  if (inputs && String(inputs) !== String(pageState().inputs)) {
    const open = byId("edit").getAttribute("aria-pressed") === "true";
    if (open !== inputs.length > 0) byId("edit").click();
    if (!inputs.length) byId("reset").click();
    [...document.querySelectorAll("#inputs input")].forEach((field, i) => {
      if (field.value !== inputs[i] && i in inputs) told(field, inputs[i]);
    });
  }
  if (mistake !== undefined && mistake !== pageState().mistake) {
    (document.querySelector(`#bugs [data-bug="${CSS.escape(mistake)}"]`) ?? byId("right")).click();
  }
  if (data.steps[step] && step !== pageState().step) {
    document.dispatchEvent(new CustomEvent("go", { detail: step }));
  }
}

document.addEventListener("restore", (event) => restorePage(event.detail));
const teller = new MutationObserver(() => document.dispatchEvent(new CustomEvent("state", { detail: pageState() })));
teller.observe(byId("counter"), { childList: true }); // every drawing writes it anew
for (const id of KEPT) teller.observe(byId(id), { attributeFilter: ["aria-pressed"] });
