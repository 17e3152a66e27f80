// Predictions: a question about what the current line computes, the mark of an answer, and the score.

const TINY = 1e-9; // a number below it is 0, rounding aside

// What to ask at step s about its first array of numbers: {b, flat, kind, text, form, wanted, truth, typed, judge}; null
// where a call begins, which computes nothing, and where the numbers are already on show under another name. Every other
// question asks for a number. In these texts values are named as named() reads it. judge(answer): right or wrong, null if it cannot be read. truth: what is right, and why.
// typed(answer): what stands at the place that a wrong answer names.
function questionAt(recording, s) {
  const { bound } = recording.steps[s];
  const isAsked = (_, b) => {
    const { data, kind } = recording.value(s, b);
    return data?.length > 0 && data.length <= recording.data.limits.exact && kind.startsWith("float");
  };
  const b = recording.line(s).entry ? -1 : bound.findIndex(isAsked);
  const isNew = b >= 0 && (bound[b].origin === undefined || (recording.steps[s].into !== undefined && !byId("all").checked));
  if (!isNew) return null;
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
  const name = `\`${[s, b]}\``;
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
      judge: (answer) => (answer.trim() === "" || Number.isNaN(numberIn(answer)) ? null : isNear(numberIn(answer), x)),
      typed: (answer) => `. ${slipOf(recording, [s, b], flat, numberIn(answer))}`,
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
      typed: (answer) => (numbersIn(answer).reverse().join() === shape.join() ? ". You typed the transpose's" : ""),
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

const numberIn = (answer) => Number(answer.replace(MINUS, "-").replace(",", "."));
const isNear = (answer, x) => Math.abs(answer - x) <= halfUnit(x);

// Which slip gives the number that was typed, in a sentence. Where several do, none is named; but where a mistake in the
// code and plain words say the same, the words are used.
function slipOf(recording, place, flat, answer) {
  const found = slipsAt(recording, place, flat).filter(([x]) => isNear(answer, x));
  if (found.length === 0) return "No slip that this page knows gives your number";
  const words = new Set(found.filter(([, , bug]) => !bug).map(([, told]) => told));
  const told = [...(words.size ? words : new Set(found.map(([, told]) => told)))];
  const same = found.every(([x]) => near(x, found[0][0]));
  return same && told.length === 1 ? `Your number comes out ${told[0]}` : "Several slips give your number";
}

// The wrong numbers that one gets for a cell, each with how, and maybe as which mistake: [number, "without ...", bug].
function slipsAt(recording, place, flat) {
  const { data: numbers, shape } = recording.value(...place);
  const x = numbers[flat];
  const slips = x === 0 ? [] : [[-x, "with the other sign"]];
  const [row, column] = indexOf(shape, flat).slice(-2);
  const turned = shape.length === 2 && row < shape[1] && column < shape[0] ? column * shape[1] + row : -1;
  numbers.forEach((other, i) => {
    if (i === flat) return;
    const where = `\`${place}\`[${indexOf(shape, i).join(", ")}]`;
    slips.push([other, i === turned ? `with row and column swapped: it is ${where}` : `one place further on: it is ${where}`]);
  });
  const { term, cells } = originOf(recording, place, flat);
  if (term !== null) {
    const values = cells.map(([from, cell]) => recording.value(...from).data?.[cell] ?? NaN);
    for (const [slip, told] of slipsIn(term)) slips.push([evaluated(slip, values), told]);
  }
  for (const bug of playable()) {
    if (bug === recording.bug) continue;
    const change = bug.numbers.find(([s, b]) => s === place[0] && b === place[1]);
    if (!change) continue;
    const [changed, packed] = recording.data.changes[change[2]];
    const at = changed ? changed.indexOf(flat) : flat;
    if (at >= 0) slips.push([floats(packed, Float64Array)[at], `with this mistake: ${bug.mistake.replace(/\.$/, "")}`, bug]);
  }
  return slips.filter(([number]) => Number.isFinite(number) && !near(number, x));
}

// A term without one of its factors or divisors, and with one product instead of the sum.
function slipsIn(term) {
  if (!Array.isArray(term)) return [];
  const [sign, ...parts] = term;
  const slips = [];
  if (sign === "+") parts.forEach((part) => slips.push([part, "without the sum: it is one of its terms"]));
  const isSum = parts.map((part) => outermostSum(part) !== null);
  if ((sign === "*" || sign === "/") && isSum[0] && !isSum[1])
    slips.push([parts[0], sign === "*" ? "without the factor" : "without the division"]);
  if (sign === "*" && isSum[1] && !isSum[0]) slips.push([parts[1], "without the factor"]);
  parts.forEach((part, i) => {
    for (const [slip, told] of slipsIn(part)) slips.push([[sign, ...parts.with(i, slip)], told]);
  });
  return slips;
}

const sameNumbers = (a, b) => a.length === b.length && a.every((x, i) => Object.is(x, b[i]));

// Why a shape is what it is: the shapes of what the line reads.
function shapesRead(recording, s) {
  const read = operandsOf(recording, s).map(
    (place) => `\`${place}\` is ${shapeText(recording.recorded(...place).shape)}`,
  );
  return read.length ? `, since ${read.join(", ")}` : "";
}

// marks: by step, whether the answer was right.
function scoreOf(marks) {
  const right = [...marks.values()].filter(Boolean).length;
  return marks.size ? `${right} of ${marks.size} predictions right` : "";
}
