// A JavaScript twin of the ops of the small examples, forward and backward, in the names of the Python code. It
// computes the steps anew when an input is edited. A matrix is a list of rows. note(label, {name: value}) hands each
// result over.

const zip = (a, b, f) => a.map((row, i) => row.map((x, j) => f(x, b[i][j])));
const map = (a, f) => a.map((row) => row.map(f));
const transpose = (a) => a[0].map((_, j) => a.map((row) => row[j]));
const matmul = (a, b) => {
  const columns = transpose(b);
  return a.map((row) => columns.map((column) => dot(row, column)));
};
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const mean = (row) => row.reduce((sum, x) => sum + x, 0) / row.length;
const product = (x, y) => x * y;
const sum = (x, y) => x + y;

function linear({ x, weight }, note, label = "linear") {
  const y = matmul(x, weight);
  note(label, { x, weight, rows: x, product: y, y });

  function backward(dy) {
    const dx = matmul(dy, transpose(weight));
    const dweight = matmul(transpose(x), dy);
    note(label, { dy, dproduct: dy, drows: dx, dx, dweight });
    return [dx, dweight];
  }

  return [y, backward];
}

function softmax({ x, temperature = 1 }, note) {
  const largest = x.map((row) => [Math.max(...row)]);
  const shift = map(largest, (m) => (m === -Infinity ? 0 : m));
  const exponentials = x.map((row, i) => row.map((score) => Math.exp((score - shift[i][0]) / temperature)));
  const total = exponentials.map((row) => [row.reduce(sum, 0)]);
  const y = exponentials.map((row, i) => row.map((e) => e / (total[i][0] === 0 ? 1 : total[i][0])));
  note("softmax", { x, temperature, largest, shift, exponentials, total, y });

  function backward(dy) {
    const dx = y.map((row, i) => row.map((p, j) => (p * (dy[i][j] - dot(dy[i], row))) / temperature));
    note("softmax", { dy, dx });
    return [dx];
  }

  return [y, backward];
}

function attention({ q, k, v, scale }, note) {
  const factor = scale === undefined ? 1 / Math.sqrt(q[0].length) : scale;
  const scores = map(matmul(q, transpose(k)), (x) => x * factor);
  const [weights, softmaxBackward] = softmax({ x: scores }, note);
  const output = matmul(weights, v);
  if (scale !== undefined) note("attention", { scale });
  note("attention", { q, k, v, factor, scores, visible: scores, weights, kept: weights, output, dropout: 0 });
  note("dropout", { x: weights, rate: 0 });

  function backward(doutput) {
    const dweights = matmul(doutput, transpose(v));
    const dv = matmul(transpose(weights), doutput);
    const [dscores] = softmaxBackward(dweights);
    const dq = map(matmul(dscores, k), (x) => x * factor);
    const dk = map(matmul(transpose(dscores), q), (x) => x * factor);
    note("dropout", { dy: dweights });
    note("attention", { doutput, dkept: dweights, dv, dweights, dscores, dq, dk });
    return [dq, dk, dv];
  }

  return [output, backward];
}

function self_attention({ x, w_q, w_k, w_v, scale = 1 }, note) {
  const [q, qBackward] = linear({ x, weight: w_q }, note, "linear#1");
  const [k, kBackward] = linear({ x, weight: w_k }, note, "linear#2");
  const [v, vBackward] = linear({ x, weight: w_v }, note, "linear#3");
  const [output, attentionBackward] = attention({ q, k, v, scale }, note);
  note("self_attention", { x, w_q, w_k, w_v, scale, q, k, v, output });

  function backward(doutput) {
    const [dq, dk, dv] = attentionBackward(doutput);
    const [dx_by_q, dw_q] = qBackward(dq);
    const [dx_by_k, dw_k] = kBackward(dk);
    const [dx_by_v, dw_v] = vBackward(dv);
    const dx = zip(zip(dx_by_q, dx_by_k, sum), dx_by_v, sum);
    note("self_attention", { doutput, dq, dk, dv, dx_by_q, dw_q, dx_by_k, dw_k, dx_by_v, dw_v, dx });
    return [dx, dw_q, dw_k, dw_v];
  }

  return [output, backward];
}

function layer_norm({ x, gamma, beta, eps = 1e-5 }, note) {
  const centered = x.map((row) => row.map((e) => e - mean(row)));
  const variance = centered.map((row) => [mean(row.map((e) => e * e))]);
  const inverse_std = map(variance, (e) => 1 / Math.sqrt(e + eps));
  const normalized = centered.map((row, i) => row.map((e) => e * inverse_std[i][0]));
  const y = normalized.map((row) => row.map((e, j) => e * gamma[j] + beta[j]));
  note("layer_norm", { x, gamma, beta, eps, centered, variance, inverse_std, normalized, y });

  function backward(dy) {
    const dgamma = transpose(zip(dy, normalized, product)).map((column) => column.reduce(sum, 0));
    const dbeta = transpose(dy).map((column) => column.reduce(sum, 0));
    const dnormalized = dy.map((row) => row.map((e, j) => e * gamma[j]));
    const shift = dnormalized.map((row) => [mean(row)]);
    const stretch = normalized.map((row, i) => {
      const along = mean(row.map((e, j) => dnormalized[i][j] * e));
      return row.map((e) => e * along);
    });
    const dx = dnormalized.map((row, i) => row.map((e, j) => inverse_std[i][0] * (e - shift[i][0] - stretch[i][j])));
    note("layer_norm", { dy, dgamma, dbeta, dnormalized, shift, stretch, dx });
    return [dx, dgamma, dbeta];
  }

  return [y, backward];
}

const TWINS = { softmax, attention, self_attention, layer_norm };

// Run a twin on inputs by name, and its backward on the gradient of the output: Map from "label.name" to the numbers.
function runTwin(name, inputs, upstream) {
  const numbers = new Map();
  const note = (label, values) => {
    for (const [key, value] of Object.entries(values))
      numbers.set(`${label}.${key}`, Float64Array.from([value].flat(2)));
  };
  const [, backward] = TWINS[name](inputs, note);
  backward(upstream);
  return numbers;
}
