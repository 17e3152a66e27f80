// The forward pass of the demo's translator, without Python: an encoder-decoder with LayerNorm before each sublayer,
// ReLU and greedy decoding. A matrix is a list of rows, each a Float64Array. The weights are those of model.js.
"use strict";

const EPSILON = 1e-5; // of LayerNorm
const [START, END] = [1, 2]; // ids of tokens

// Every parameter under its name, as Python has it.
function parametersOf(model) {
  const bytes = Uint8Array.from(atob(model.numbers), (letter) => letter.charCodeAt(0));
  const numbers = new DataView(bytes.buffer);
  const found = {};
  let at = 0;
  for (const [name, rows, columns] of model.shapes) {
    found[name] = Array.from({ length: rows }, () => Float64Array.from({ length: columns }, () => numbers.getFloat32(4 * at++, true)));
  }
  return found;
}

const zeros = (rows, columns) => Array.from({ length: rows }, () => new Float64Array(columns));
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const add = (a, b) => a.map((row, i) => row.map((x, j) => x + b[i][j]));

// X W + b
function linear(x, weight, bias) {
  return x.map((row) => {
    const y = Float64Array.from(bias);
    row.forEach((number, i) => {
      const along = weight[i];
      for (let j = 0; j < y.length; j++) y[j] += number * along[j];
    });
    return y;
  });
}

// γ (x − mean) / √(variance + ε) + β
function layerNorm(x, gamma, beta) {
  return x.map((row) => {
    const mean = sum(row) / row.length;
    const deviation = Math.sqrt(sum(row.map((number) => (number - mean) ** 2)) / row.length + EPSILON);
    return row.map((number, j) => (gamma[j] * (number - mean)) / deviation + beta[j]);
  });
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - largest));
  const total = sum(exponentials);
  return exponentials.map((each) => each / total);
}

class Translator {
  constructor(model) {
    Object.assign(this, model);
    this.parameters = parametersOf(model);
    this.size = sum(model.shapes.map(([, rows, columns]) => rows * columns));
  }

  get(name) {
    if (!(name in this.parameters)) throw new Error(`the model has no parameter ${name}`);
    return this.parameters[name];
  }

  linear(x, name) {
    return linear(x, this.get(`${name}.weight`), this.get(`${name}.bias`)[0]);
  }

  norm(x, name) {
    return layerNorm(x, this.get(`${name}.gamma`)[0], this.get(`${name}.beta`)[0]);
  }

  // √D times the row of each token, plus the sines and cosines of its position.
  embed(ids, table) {
    const width = table[0].length;
    return ids.map((id, position) =>
      table[id].map((x, j) => {
        const angle = position / 10000 ** ((j - (j % 2)) / width);
        return Math.sqrt(width) * x + (j % 2 ? Math.cos(angle) : Math.sin(angle));
      }),
    );
  }

  // softmax(Q Kᵀ / √d_k) V in each head. The weights of all heads go to `seen`.
  attention(x, memory, name, causal, seen) {
    const [q, k, v] = [this.linear(x, `${name}.query`), this.linear(memory, `${name}.key`), this.linear(memory, `${name}.value`)];
    const width = q[0].length / this.heads;
    const mixed = zeros(x.length, v[0].length);
    for (let head = 0; head < this.heads; head++) {
      const from = head * width;
      const weights = q.map((query, i) =>
        softmax(
          k.map((key, j) => {
            if (causal && j > i) return -Infinity;
            let score = 0;
            for (let c = from; c < from + width; c++) score += query[c] * key[c];
            return score / Math.sqrt(width);
          }),
        ),
      );
      weights.forEach((row, i) =>
        row.forEach((weight, j) => {
          for (let c = from; c < from + width; c++) mixed[i][c] += weight * v[j][c];
        }),
      );
      seen.push(weights);
    }
    return this.linear(mixed, `${name}.output`);
  }

  // x + sublayer(LayerNorm(x))
  residual(x, name, sublayer) {
    return add(x, sublayer(this.norm(x, `${name}.norm`), `${name}.sublayer`));
  }

  feedForward(x, name) {
    const hidden = this.linear(x, `${name}.inner`).map((row) => row.map((number) => Math.max(number, 0)));
    return this.linear(hidden, `${name}.output`);
  }

  encode(source, seen) {
    let x = this.embed(source, this.get("embed_source.tokens.table"));
    for (let layer = 0; layer < this.layers[0]; layer++) {
      const name = `encoder.layers.${layer}`;
      x = this.residual(x, `${name}.self_attention`, (normed, inside) => this.attention(normed, normed, inside, false, seen));
      x = this.residual(x, `${name}.feed_forward`, (normed, inside) => this.feedForward(normed, inside));
    }
    return this.norm(x, "encoder.final_norm");
  }

  // The logits of the token after each of the target's.
  decode(target, memory, own, cross) {
    const table = this.get("target_tokens.table");
    let x = this.embed(target, table);
    for (let layer = 0; layer < this.layers[1]; layer++) {
      const name = `decoder.layers.${layer}`;
      x = this.residual(x, `${name}.self_attention`, (normed, inside) => this.attention(normed, normed, inside, true, own));
      x = this.residual(x, `${name}.cross_attention`, (normed, inside) => this.attention(normed, memory, inside, false, cross));
      x = this.residual(x, `${name}.feed_forward`, (normed, inside) => this.feedForward(normed, inside));
    }
    return this.norm(x, "decoder.final_norm").map((row) => table.map((token) => sum(token.map((number, c) => number * row[c]))));
  }

  // Write the likeliest token, again and again, until that is <end>. weights: of each kind of attention, the weights of
  // all heads, layer by layer, (queries × keys).
  translate(words, longest = 24) {
    const source = words.map((word) => this.source.indexOf(word));
    if (source.includes(-1)) throw new Error(`the model does not know ${words[source.indexOf(-1)]}`);
    const encoder = [];
    const memory = this.encode(source, encoder);
    const target = [START];
    for (;;) {
      const [decoder, cross] = [[], []];
      const logits = this.decode(target, memory, decoder, cross).at(-1);
      const next = logits.indexOf(Math.max(...logits));
      if (next === END || target.length === longest)
        return { read: target.map((id) => this.target[id]), written: [...target.slice(1), next].map((id) => this.target[id]), weights: { encoder, decoder, cross } };
      target.push(next);
    }
  }
}
