"""GPT-2 on one page: forward, backward, training and sampling, with NumPy and nothing else.

    python notebooks/gpt2.py input.txt

trains a model of 0.8 million parameters on a text of about book length, and then writes in its style.

One idea carries the page. A forward pass returns its own backward pass:

    y, backward = f(x)
    dx = backward(dy)

Write dx_j for ∂loss/∂x_j, always: the gradient of `scores` is `dscores`. By the chain rule dx_j = sum_i dy_i ∂y_i/∂x_j.
`backward` computes this sum; what it needs from the forward pass is in the variables around it. The loss has the
gradient 1, and from there the backward passes are called in reverse order. That is all of backpropagation.

Sizes: B sequences of T tokens are N = B·T rows. A row has D numbers; H heads share them, d = D/H for each. A hidden row
has F numbers, and the vocabulary V tokens. Only attention looks from row to row; all else treats each row on its own.
"""

import argparse
import contextlib
import math

import numpy as np

LAYER = ("norm_1", "query", "key", "value", "output", "norm_2", "inner", "outer")  # the parts of a layer that learn


def linear(x, weight, bias):
    """y = x W + b, or y_nj = sum_i x_ni W_ij + b_j. x: (N, in); weight: (in, out); bias: (out,); y: (N, out).

    dx = dy Wᵀ,  dW = xᵀ dy,  db = sum_n dy_n. The last two sum over the rows n, because all rows use the same W and b.
    """
    y = x @ weight + bias

    def backward(dy):
        dx = dy @ weight.T
        dweight = x.T @ dy
        dbias = dy.sum(axis=0)
        return dx, dweight, dbias

    return y, backward


def gelu(x):
    """y = x (1 + tanh u) / 2 with u = √(2/π) (x + 0.044715 x³): a smooth max(x, 0). Hendrycks and Gimpel 2016.

    The slope of tanh is 1 - tanh², so dx = dy ((1 + tanh u) / 2 + x (1 - tanh² u) u' / 2).
    """
    tanh = np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))
    y = 0.5 * x * (1.0 + tanh)

    def backward(dy):
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * x * x)  # u'
        dx = dy * 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * slope)
        return dx

    return y, backward


def layer_norm(x, gamma, beta, eps=1e-5):
    """Give each row mean 0 and variance 1, then scale by γ and shift by β. Ba et al. 2016. x, y: (N, D); γ, β: (D,).

        n = (x - mean) s with s = 1 / √(variance + ε),        y = γ n + β

    Mean and variance carry an x_j to every n_i of its row: ∂n_i/∂x_j = s (δ_ij - 1/D - n_i n_j / D). So with dn = γ dy
    dx = s (dn - mean(dn) - n mean(dn n)). The two means take out what would shift or stretch the row: n cannot follow.
    """
    centered = x - x.mean(axis=-1, keepdims=True)
    s = 1.0 / np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + eps)
    n = centered * s
    y = gamma * n + beta

    def backward(dy):
        dgamma = (dy * n).sum(axis=0)
        dbeta = dy.sum(axis=0)
        dn = dy * gamma
        dx = s * (dn - dn.mean(axis=-1, keepdims=True) - n * (dn * n).mean(axis=-1, keepdims=True))
        return dx, dgamma, dbeta

    return y, backward


def softmax(x):
    """y_i = exp(x_i) / sum_j exp(x_j): scores become weights that sum to 1. x, y: any shape, along the last axis.

    ∂y_i/∂x_j = y_i (δ_ij - y_j), so dx_j = sum_i dy_i y_i (δ_ij - y_j) = y_j (dy_j - sum_i dy_i y_i).
    """
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))  # a shift cancels in y, and exp cannot overflow
    y = exponentials / exponentials.sum(axis=-1, keepdims=True)

    def backward(dy):
        dx = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
        return dx

    return y, backward


def attention(q, k, v):
    """output = softmax(q kᵀ / √d) v, where a query sees no later key. Vaswani et al. 2017. All arrays: (B, H, T, d).

    scores_ij says how well query i and key j match, and output_i is the mean of the values under the weights of query
    i. Why √d: a product of d terms of variance 1 has variance d. In backward, C = A B gives dA = dC Bᵀ and dB = Aᵀ dC.
    """
    t, d = q.shape[-2:]
    scale = 1.0 / math.sqrt(d)
    scores = q @ k.swapaxes(-1, -2) * scale  # (B, H, T, T)
    visible = np.where(np.tri(t, dtype=bool), scores, -np.inf)  # np.tri: True on and below the diagonal
    weights, softmax_backward = softmax(visible)  # exp(-inf) = 0
    output = weights @ v

    def backward(doutput):
        dweights = doutput @ v.swapaxes(-1, -2)
        dv = weights.swapaxes(-1, -2) @ doutput
        dscores = softmax_backward(dweights)  # 0 where the weight is 0, so the mask needs no line here
        dq = dscores @ k * scale
        dk = dscores.swapaxes(-1, -2) @ q * scale
        return dq, dk, dv

    return output, backward


def cross_entropy(logits, wanted):
    """loss = mean of -log p of the wanted tokens, where p = softmax(logits). logits: (N, V); wanted: (N,); loss: ().

    log p_v = logits_v - log sum_j exp(logits_j), so ∂log p_v/∂logits_j = δ_vj - p_j and dlogits = dloss (p - hit) / N.
    """
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = -np.take_along_axis(log_p, wanted[:, None], axis=-1).mean()

    def backward(dloss):
        hit = np.arange(logits.shape[1]) == wanted[:, None]  # (N, V): True at the wanted token
        dlogits = dloss * (np.exp(log_p) - hit) / len(wanted)
        return dlogits

    return loss, backward


def split(x, t, n_heads):
    """(B·T, H·d) to (B, H, T, d). Numbers only change places, so `merge` is the way back, for gradients as well."""
    return x.reshape(-1, t, n_heads, x.shape[1] // n_heads).swapaxes(1, 2)


def merge(heads):
    """(B, H, T, d) to (B·T, H·d)."""
    return heads.swapaxes(1, 2).reshape(-1, heads.shape[1] * heads.shape[3])


def layer(x, p, t, n_heads):
    """h = x + attention(norm(x)), then y = h + feed-forward network(norm(h)). x, h, y: (N, D).

    p maps the name of each part to the list of its arrays; so does dp, to their gradients. linear(x, *p["query"]) gets
    weight and bias, and dx, *dp["query"] = backward(dy) splits their gradients off dx. A sum hands its gradient to both
    of its terms. What is used several times adds up the gradients of its uses.
    """
    a, norm_1_backward = layer_norm(x, *p["norm_1"])
    q, q_backward = linear(a, *p["query"])
    k, k_backward = linear(a, *p["key"])
    v, v_backward = linear(a, *p["value"])
    heads, attention_backward = attention(*(split(each, t, n_heads) for each in (q, k, v)))
    attended, output_backward = linear(merge(heads), *p["output"])
    h = x + attended
    f, norm_2_backward = layer_norm(h, *p["norm_2"])
    hidden, inner_backward = linear(f, *p["inner"])  # (N, F)
    active, gelu_backward = gelu(hidden)
    fed, outer_backward = linear(active, *p["outer"])  # (N, D)
    y = h + fed

    def backward(dy):
        dp = {}
        dactive, *dp["outer"] = outer_backward(dy)
        df, *dp["inner"] = inner_backward(gelu_backward(dactive))
        dh_by_f, *dp["norm_2"] = norm_2_backward(df)
        dh = dy + dh_by_f
        dmerged, *dp["output"] = output_backward(dh)
        dq, dk, dv = (merge(each) for each in attention_backward(split(dmerged, t, n_heads)))
        da_by_q, *dp["query"] = q_backward(dq)
        da_by_k, *dp["key"] = k_backward(dk)
        da_by_v, *dp["value"] = v_backward(dv)
        dx_by_a, *dp["norm_1"] = norm_1_backward(da_by_q + da_by_k + da_by_v)
        dx = dh + dx_by_a
        return dx, dp

    return y, backward


def gpt2(ids, p, n_heads):
    """A score for every token that may come next, at each place. ids: (B, T); logits: (B·T, V). backward returns dp.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". The table of tokens is used twice: to
    look tokens up, and at the end to compare each row with every token.
    """
    (tokens, positions), (b, t), backwards = p["embedding"], ids.shape, []
    x = (tokens[ids] + positions[:t]).reshape(b * t, -1)
    for i in range(len(p) // len(LAYER)):
        x, backward_of_layer = layer(x, {name: p[f"{i}.{name}"] for name in LAYER}, t, n_heads)
        backwards.append(backward_of_layer)
    last, norm_backward = layer_norm(x, *p["norm"])
    logits = last @ tokens.T

    def backward(dlogits):
        dp, dpositions = {}, np.zeros_like(positions)
        dx, *dp["norm"] = norm_backward(dlogits @ tokens)
        for i in reversed(range(len(backwards))):
            dx, dlayer = backwards[i](dx)
            dp |= {f"{i}.{name}": gradients for name, gradients in dlayer.items()}
        dpositions[:t] = dx.reshape(b, t, -1).sum(axis=0)
        dtokens = dlogits.T @ last
        np.add.at(dtokens, ids.reshape(-1), dx)  # dtokens[ids] += dx would keep only one place of each token
        return dp | {"embedding": [dtokens, dpositions]}

    return logits, backward


def new_model(rng, vocabulary, length, width, n_layers):
    """Random parameters. Weights have the variance 1/in: a sum over `in` products then has the variance of one x."""
    p = {"embedding": [rng.normal(0.0, 0.02, (rows, width)) for rows in (vocabulary, length)]}
    sizes = {"inner": (width, 4 * width), "outer": (4 * width, width)}
    for name in [f"{i}.{part}" for i in range(n_layers) for part in LAYER] + ["norm"]:
        d_in, d_out = sizes.get(name.partition(".")[2], (width, width))
        p[name] = [np.ones(width) if "norm" in name else rng.normal(0.0, d_in**-0.5, (d_in, d_out)), np.zeros(d_out)]
    return {name: [array.astype(np.float32) for array in part] for name, part in p.items()}


def adamw(theta, g, m, v, t, rate, beta_1=0.9, beta_2=0.95, eps=1e-8, decay=0.1):
    """Move θ by its gradient g, in place. t: the step, from 1 on. Loshchilov and Hutter 2019, algorithm 2.

        m = β1 m + (1 - β1) g,   v = β2 v + (1 - β2) g²,   θ = θ - rate (m̂ / (√v̂ + ε) + decay θ)

    m and v start at 0, and m̂ = m / (1 - β1^t), v̂ = v / (1 - β2^t) make up for it. Biases and norms do not decay.
    """
    m += (1.0 - beta_1) * (g - m)
    v += (1.0 - beta_2) * (g * g - v)
    quotient = m / (1.0 - beta_1**t) / (np.sqrt(v / (1.0 - beta_2**t)) + eps)
    theta -= rate * (quotient + (decay * theta if theta.ndim > 1 else 0.0))


def train(p, ids, rng, n_heads, length, rows, steps, peak=4e-3):
    """Yield the loss of each step. The rate rises to its peak in a tenth of the steps, then falls along a cosine."""
    m, v = ({name: [np.zeros_like(theta) for theta in part] for name, part in p.items()} for _ in "mv")
    warmup = max(1, steps // 10)
    for step in range(1, steps + 1):
        starts = rng.integers(0, len(ids) - length, rows)
        windows = ids[starts[:, None] + np.arange(length + 1)]  # (B, T + 1)
        logits, model_backward = gpt2(windows[:, :-1], p, n_heads)
        loss, loss_backward = cross_entropy(logits, windows[:, 1:].reshape(-1))
        dp = model_backward(loss_backward(1.0))
        norm = math.sqrt(sum(float((g * g).sum()) for part in dp.values() for g in part))
        rate = peak * min(step / warmup, 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
        for name in p:
            for theta, g, *state in zip(p[name], dp[name], m[name], v[name], strict=True):
                adamw(theta, g / max(1.0, norm), *state, step, rate)  # together the gradients are at most 1 long
        yield loss


def loss_on(ids, p, n_heads, length):
    """The mean loss over all windows of `length` tokens that lie one after the other."""
    windows = (ids[i : i + length + 1] for i in range(0, len(ids) - length, length))
    return np.mean([cross_entropy(gpt2(w[None, :-1], p, n_heads)[0], w[1:])[0] for w in windows])


def write(ids, n, p, rng, n_heads, length, temperature=0.8):
    """Yield n more tokens. Each is drawn from what the model expects after the last `length` tokens."""
    ids = list(ids)
    for _ in range(n):
        logits, _ = gpt2(np.array([ids[-length:]]), p, n_heads)
        chances, _ = softmax(logits[-1].astype(np.float64) / temperature)
        ids.append(int(rng.choice(len(chances), p=chances)))
        yield ids[-1]


def main():
    """Read the text, whose tokens are its characters; train on nine tenths of it, and measure on the last."""
    parser = argparse.ArgumentParser(description="Train a small GPT-2 on a text, then let it write.")
    parser.add_argument("text", help="a file of plain text in UTF-8, of about book length")
    parser.add_argument("--steps", type=int, default=2000, help="of training (default: 2000, a few minutes)")
    parser.add_argument("--begin", default="\n", help="how the written text begins (default: with a new line)")
    asked = parser.parse_args()
    try:
        with open(asked.text, encoding="utf-8") as file:
            characters, ids = np.unique(list(file.read()), return_inverse=True)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"cannot read {asked.text}: {error}")
    n_heads, length, cut, rng = 4, 64, round(0.9 * len(ids)), np.random.default_rng(0)
    if len(ids) - cut <= length or asked.steps < 1:
        parser.error(f"got {len(ids)} characters and {asked.steps} steps; {11 * length} and 1 are the least")
    if not asked.begin or set(asked.begin) - set(characters):
        parser.error(f"--begin must consist of characters of the text, got {asked.begin!r}")
    p = new_model(rng, len(characters), length, width=128, n_layers=4)
    for step, loss in enumerate(train(p, ids[:cut], rng, n_heads, length, 12, asked.steps), 1):
        if step == 1 or step % 250 == 0 or step == asked.steps:
            print(f"step {step}: loss {loss:.3f}, on the last tenth {loss_on(ids[cut:], p, n_heads, length):.3f}")
    begin = np.searchsorted(characters, list(asked.begin))
    print(asked.begin + "".join(characters[i] for i in write(begin, 400, p, rng, n_heads, length)))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # Ctrl-C, and `| head`
        main()
