// Predictions: a question about what the current line computes, the mark of an answer, and the score.

const TINY = 1e-9; // a number below it is 0, rounding aside

// What to ask at step s about its first array of numbers: {b, flat, kind, text, form, wanted, truth, typed, judge}; null
// where a call begins, which computes nothing, and where the numbers are already on show under another name. Every other
// question asks for a number. judge(answer): right or wrong, null if it cannot be read. truth: what is right, and why.
// typed(answer): what stands at the place that a wrong answer names.
function questionAt(recording, s) {
  const { bound } = recording.steps[s];
  const isAsked = (_, b) => {
    const { data, kind } = recording.value(s, b);
    return data?.length > 0 && data.length <= recording.data.limits.exact && kind.startsWith("float");
  };
  const b = recording.line(s).entry ? -1 : bound.findIndex(isAsked);
  if (b < 0 || bound[b].origin !== undefined) return null;
  const { shape, data } = recording.value(s, b);
  const onShow = operandsOf(recording, s).map((place) => recording.value(...place));
  const copied = onShow.some((array) => array.data && sameNumbers(array.data, data)); // such as a reshape
  const shapeOnShow = bound[b].pair !== undefined || onShow.some((array) => shapeText(array.shape) === shapeText(shape));
  const finite = [...data.keys()].filter((i) => Number.isFinite(data[i]));
  const flat = finite.length ? finite[(7 * s) % finite.length] : 0;
  const x = data[flat];
  const most = finite.reduce((best, i) => (data[i] > data[best] ? i : best), finite[0]);
  const ties = finite.filter((i) => readable(data[i]) === readable(data[most]));
  const others = [
    ...(shape.length && !shapeOnShow ? ["shape"] : []),
    ...(!copied && Math.abs(x) > TINY && finite.some((i) => data[i] * x < 0) ? ["sign"] : []),
    ...(!copied && ties.length < data.length ? ["largest"] : []),
  ];
  const canCount = !copied && finite.length > 0;
  if (!canCount && others.length === 0) return null;
  const possible = !canCount ? others : others.length ? others.flatMap((kind) => ["number", kind]) : ["number"];
  const turn = recording.steps.slice(0, s).filter((step) => step.shown).length;
  const kind = possible[turn % possible.length];
  const { name } = bound[b];
  const cell = (i) => name + (shape.length ? `[${indexOf(shape, i).join(", ")}]` : "");
  const numbersIn = (answer) => (answer.match(/\d+/g) ?? []).map(Number);
  const placeIn = (answer) => {
    const place = numbersIn(answer);
    const exists = place.length === shape.length && place.every((i, axis) => i < shape[axis]);
    return exists ? place.reduce((at, i, axis) => at * shape[axis] + i, 0) : null;
  };
  const example = shape.map((size, axis) => (axis === 0 && size > 1 ? 1 : 0)).join(", ");
  const kinds = {
    number: {
      text: `What is ${cell(flat)}, to two significant digits?`,
      form: "such as 0.25",
      wanted: "a number, such as 0.25",
      truth: `${cell(flat)} = ${readable(x)}`,
      judge: (answer) => {
        const found = Number(answer.replace(MINUS, "-").replace(",", "."));
        return answer.trim() === "" || Number.isNaN(found) ? null : Math.abs(found - x) <= halfUnit(x);
      },
    },
    sign: {
      text: `Is ${cell(flat)} above or below zero?`,
      form: `+ or ${MINUS}`,
      wanted: `+ or ${MINUS}, above or below`,
      truth: `${cell(flat)} = ${readable(x)}`,
      judge: (answer) => {
        const typed = answer.trim().toLowerCase();
        if (["+", "above", "positive"].includes(typed)) return x > 0;
        if (["-", MINUS, "below", "negative"].includes(typed)) return x < 0;
        return typed === "zero" || typed === "0" ? false : null;
      },
    },
    largest: {
      text: `Which entry of ${name} is the largest (with its sign)?`,
      form: shape.length > 2 ? example : `such as ${example}`,
      wanted: `its place, such as ${example}`,
      truth: `${ties.map(cell).join(" = ")} = ${readable(data[most])}`,
      typed: (answer) => `; you typed ${cell(placeIn(answer))} = ${readable(data[placeIn(answer)])}`,
      judge: (answer) => (placeIn(answer) === null ? null : ties.includes(placeIn(answer))),
    },
    shape: {
      text: `What shape does ${name} have?`,
      form: "such as 3\u00d74",
      wanted: "its axes, such as 3\u00d74",
      truth: `${name} is ${shapeText(shape)}${shapesRead(recording, s)}`,
      judge: (answer) => (numbersIn(answer).length ? numbersIn(answer).join() === shape.join() : null),
    },
  };
  return { b, kind, flat: kind === "largest" ? most : flat, ...kinds[kind] };
}

// Half a unit of the second significant digit: an answer that is rounded to two digits is no farther off, and at a tie
// both neighbours count.
function halfUnit(x) {
  const unit = Math.abs(x) < TINY ? 0 : 10 ** (Math.floor(Math.log10(Math.abs(x))) - 1);
  return (unit / 2) * (1 + TINY) + TINY;
}

const sameNumbers = (a, b) => a.length === b.length && a.every((x, i) => Object.is(x, b[i]));

// Why a shape is what it is: the shapes of what the line reads.
function shapesRead(recording, s) {
  const read = operandsOf(recording, s).map(
    ([from, b]) => `${recording.steps[from].bound[b].name} is ${shapeText(recording.recorded(from, b).shape)}`,
  );
  return read.length ? `, since ${read.join(", ")}` : "";
}

// marks: by step, whether the answer was right.
function scoreOf(marks) {
  const right = [...marks.values()].filter(Boolean).length;
  return marks.size ? `${right} of ${marks.size} predictions right` : "";
}
