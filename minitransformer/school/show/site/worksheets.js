// The form that makes worksheets: Python computes them in this browser, and a link saves them.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = byId("worksheet");
  python.next = "worksheet";
  const { kind, seed, size, students } = form.elements;
  const bound = () => {
    const { least, most } = kind.selectedOptions[0].dataset;
    [size.min, size.max] = [least, most];
    size.value = Math.min(Math.max(size.value, least), most);
  };
  kind.addEventListener("change", bound);
  form.addEventListener("focusin", () => python.ahead(["minitransformer.school.show.site.worksheets"]));
  bound();

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const key = event.submitter?.value === "key";
    const made = byId("made");
    made.textContent = "";
    const given = `${JSON.stringify(kind.value)}, ${Number(seed.value)}, ${Number(size.value)}, ${Number(students.value)}`;
    const code = `from minitransformer.school.show.site.worksheets import document\ndocument(${given}, ${key ? "True" : "False"})`;
    const ended = await python.run({ code }, (output) => {
      if (output.output_type === "error") made.textContent = output.evalue;
      const text = output.data?.["text/html"];
      if (!text) return;
      const name = `${key ? "key" : "worksheet"}-${kind.value}-${seed.value}.html`;
      const href = URL.createObjectURL(new Blob([text], { type: "text/html" }));
      made.append(make("a", { href, download: name }, `Save ${name}`));
    });
    if (ended.problem) made.textContent = ended.problem;
  });
});
