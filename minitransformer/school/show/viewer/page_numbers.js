// The numbers of all maps, and a function that makes SVG elements.

const SVG = "http://www.w3.org/2000/svg";
const vector = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

const area = (maps) => maps.rows.length * maps.columns.length;
const masked = (maps, i, j) => maps.causal && j > i;

for (const maps of data.maps) {
  maps.rows = data.sequences[maps.queries];
  maps.columns = data.sequences[maps.keys];
  maps.numbers = floats(maps.weights);
  maps.slopes = maps.gradients.map((text) => floats(text));
  const hidden = Array.from({ length: area(maps) }, (_, flat) =>
    masked(maps, Math.floor(flat / maps.columns.length), flat % maps.columns.length),
  );
  for (const slopes of maps.slopes)
    slopes.forEach((_, at) => {
      if (hidden[at % hidden.length]) slopes[at] = 0; // a masked weight stays 0, so its gradient says nothing
    });
}

// The weights of one map, (queries × keys); and the numbers that it shows now, weights or gradients.
function weightsOf(maps, layer, head) {
  const start = (layer * maps.heads + head) * area(maps);
  return maps.numbers.subarray(start, start + area(maps));
}

function shownOf(maps, layer, head) {
  if (!state.gradient) return weightsOf(maps, layer, head);
  const start = (layer * maps.heads + head) * area(maps);
  return maps.slopes[state.choice].subarray(start, start + area(maps));
}

const largest = (numbers) => numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 0);

const largestSlopes = new Map(); // by choice: over all maps, so that heads can be compared
function largestSlope() {
  if (!largestSlopes.has(state.choice))
    largestSlopes.set(state.choice, Math.max(...data.maps.map((maps) => largest(maps.slopes[state.choice]))));
  return largestSlopes.get(state.choice);
}

const signed = (x, digits = 3) => (x > 0 ? "+" : x < 0 ? "−" : "") + Number(Math.abs(x).toPrecision(digits));
const quoted = (token) => `“${token}”`;
