// The page in a notebook: in a frame, so that neither disturbs the other, and with its state in the widget's model.

function render({ model, el }) {
  const frame = document.createElement("iframe");
  Object.assign(frame, { title: model.get("title"), width: "100%", height: String(model.get("height")) });
  frame.style.border = "0";
  let inside = null; // the page's document
  let told = ""; // the state that the page told last
  const send = () => {
    const state = model.get("state");
    if (inside && JSON.stringify(state) !== told) inside.dispatchEvent(new CustomEvent("restore", { detail: state }));
  };
  frame.addEventListener("load", () => {
    inside = frame.contentDocument;
    send();
    inside.addEventListener("state", ({ detail }) => {
      told = JSON.stringify(detail);
      if (told === JSON.stringify(model.get("state"))) return;
      model.set("state", JSON.parse(told));
      model.save_changes();
    });
  });
  model.on("change:state", send);
  frame.srcdoc = model.get("page");
  el.append(frame);
  return () => model.off("change:state", send);
}

export default { render };
