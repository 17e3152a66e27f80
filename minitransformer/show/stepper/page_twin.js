// A JavaScript twin of the ops of the small examples, forward and backward, with the names of the Python code. It
// recomputes the steps when an input is edited. A matrix is a list of rows. note(label, {name: value}) records each
// value as it is bound, and returns all values bound so far under that label. Some of these may be replaced by other
// numbers, for a mistake or a finite difference.

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

function linear(inputs, note, label = "linear") {
  const { x, weight } = note(label, inputs);
  const { rows } = note(label, { rows: x });
  const { product } = note(label, { product: matmul(rows, weight) });
  const { y } = note(label, { y: product });

  function backward(dy) {
    const dx = matmul(dy, transpose(weight));
    const dweight = matmul(transpose(rows), dy);
    note(label, { dy, dproduct: dy, drows: dx, dx, dweight });
    return [dx, dweight];
  }

  return [y, backward];
}

function softmax(inputs, note) {
  const { x, temperature } = note("softmax", { temperature: 1, ...inputs });
  const largest = x.map((row) => [Math.max(...row)]);
  const shift = map(largest, (m) => (m === -Infinity ? 0 : m));
  const exponentials = x.map((row, i) => row.map((score) => Math.exp((score - shift[i][0]) / temperature)));
  const total = exponentials.map((row) => [row.reduce(sum, 0)]);
  note("softmax", { largest, shift, exponentials, total });
  const { y } = note("softmax", {
    y: exponentials.map((row, i) => row.map((e) => e / (total[i][0] === 0 ? 1 : total[i][0]))),
  });

  function backward(dy) {
    note("softmax", { dy });
    const { dx } = note("softmax", {
      dx: y.map((row, i) => row.map((p, j) => (p * (dy[i][j] - dot(dy[i], row))) / temperature)),
    });
    return [dx];
  }

  return [y, backward];
}

function attention(inputs, note) {
  const { q, k, v, scale } = note("attention", inputs);
  const { factor } = note("attention", { factor: scale === undefined ? 1 / Math.sqrt(q[0].length) : scale });
  const { scores } = note("attention", { scores: map(matmul(q, transpose(k)), (x) => x * factor) });
  const { biased } = note("attention", { biased: scores });
  const { visible } = note("attention", { visible: biased, dropout: 0 });
  const [y, softmaxBackward] = softmax({ x: visible }, note);
  const { weights } = note("attention", { weights: y });
  note("dropout", { x: weights, rate: 0 });
  const { kept } = note("attention", { kept: weights });
  const { output } = note("attention", { output: matmul(kept, v) });

  function backward(doutput) {
    const dkept = matmul(doutput, transpose(v));
    note("dropout", { dy: dkept });
    const { dv } = note("attention", { doutput, dkept, dv: matmul(transpose(kept), doutput), dweights: dkept });
    const { dscores } = note("attention", { dscores: softmaxBackward(dkept)[0] });
    const { dq, dk } = note("attention", {
      dq: map(matmul(dscores, k), (x) => x * factor),
      dk: map(matmul(transpose(dscores), q), (x) => x * factor),
    });
    return [dq, dk, dv];
  }

  return [output, backward];
}

function self_attention(inputs, note) {
  const label = "self_attention";
  const { x, w_q, w_k, w_v, scale } = note(label, { scale: 1, ...inputs });
  const [product_q, qBackward] = linear({ x, weight: w_q }, note, "linear#1");
  const [product_k, kBackward] = linear({ x, weight: w_k }, note, "linear#2");
  const [product_v, vBackward] = linear({ x, weight: w_v }, note, "linear#3");
  const { q, k, v } = note(label, { q: product_q, k: product_k, v: product_v });
  const [attended, attentionBackward] = attention({ q, k, v, scale }, note);
  const { output } = note(label, { output: attended });

  function backward(doutput) {
    const [dq, dk, dv] = attentionBackward(doutput);
    const [dx_by_q, dw_q] = qBackward(dq);
    const [dx_by_k, dw_k] = kBackward(dk);
    const [dx_by_v, dw_v] = vBackward(dv);
    const dx = zip(zip(dx_by_q, dx_by_k, sum), dx_by_v, sum);
    note(label, { doutput, dq, dk, dv, dx_by_q, dw_q, dx_by_k, dw_k, dx_by_v, dw_v, dx });
    return [dx, dw_q, dw_k, dw_v];
  }

  return [output, backward];
}

function layer_norm(inputs, note) {
  const { x, gamma, beta, eps } = note("layer_norm", { eps: 1e-5, ...inputs });
  const centered = x.map((row) => row.map((e) => e - mean(row)));
  const variance = centered.map((row) => [mean(row.map((e) => e * e))]);
  const inverse_std = map(variance, (e) => 1 / Math.sqrt(e + eps));
  note("layer_norm", { centered, variance, inverse_std });
  const { normalized } = note("layer_norm", {
    normalized: centered.map((row, i) => row.map((e) => e * inverse_std[i][0])),
  });
  const { y } = note("layer_norm", { y: normalized.map((row) => row.map((e, j) => e * gamma[j] + beta[j])) });

  function backward(dy) {
    const dgamma = transpose(zip(dy, normalized, product)).map((column) => column.reduce(sum, 0));
    const dbeta = transpose(dy).map((column) => column.reduce(sum, 0));
    const dnormalized = dy.map((row) => row.map((e, j) => e * gamma[j]));
    const shift = dnormalized.map((row) => [mean(row)]);
    const stretch = normalized.map((row, i) => {
      const along = mean(row.map((e, j) => dnormalized[i][j] * e));
      return row.map((e) => e * along);
    });
    note("layer_norm", { dy, dgamma, dbeta, dnormalized, shift, stretch });
    const { dx } = note("layer_norm", {
      dx: dnormalized.map((row, i) => row.map((e, j) => inverse_std[i][0] * (e - shift[i][0] - stretch[i][j]))),
    });
    return [dx, dgamma, dbeta];
  }

  return [y, backward];
}

const TWINS = { softmax, attention, self_attention, layer_norm };

// What the twins take.
const TAKEN = {
  softmax: "float64 matrices, along the last axis",
  attention: "float64 matrices, without mask, bias and dropout",
  self_attention: "float64 matrices",
  layer_norm: "float64 matrices",
};

// The mistakes that the twin can make, by their names in verify.mistakes: which value they change, and how.
const times = (factor) => (x) => x * factor;
const ofRows = (f) => (names) =>
  names.dnormalized.map((row, i) => row.map((e, j) => names.inverse_std[i][0] * f(e, names, i, j)));
const MISTAKES = {
  "softmax-no-sum": ["softmax.dx", ({ y, dy, temperature }) => zip(y, dy, (p, e) => (p * e) / temperature)],
  "attention-not-scaled": ["attention.factor", ({ scale }) => scale ?? 1],
  "attention-dq-not-scaled": ["attention.dq", ({ dscores, k }) => matmul(dscores, k)],
  "attention-dk-not-scaled": ["attention.dk", ({ dscores, q }) => matmul(transpose(dscores), q)],
  "attention-dk-not-transposed": [
    "attention.dk",
    ({ dscores, q, factor }) => map(matmul(dscores, q), times(factor)),
  ],
  "attention-dk-reshaped": [
    "attention.dk",
    ({ dscores, q, k, factor }) => map(matmul(nest(dscores.flat(), [k.length, q.length]), q), times(factor)),
  ],
  "attention-dv-not-transposed": ["attention.dv", ({ kept, doutput }) => matmul(kept, doutput)],
  "layer-norm-no-shift": ["layer_norm.dx", ofRows((e, { stretch }, i, j) => e - stretch[i][j])],
  "layer-norm-no-stretch": ["layer_norm.dx", ofRows((e, { shift }, i) => e - shift[i][0])],
  "layer-norm-statistics-constant": ["layer_norm.dx", ofRows((e) => e)],
};
