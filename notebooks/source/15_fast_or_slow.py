# %% [markdown]
# # 15 Why it is fast, or slow
#
# The same formula can take one second or ten. Usually the reason is not the arithmetic but where the numbers are stored
# and how often they are read. In this notebook you count, predict and then measure. Your times will differ from those
# of other machines; the *ratios* should not differ much.
#
# You need notebooks 7 (attention backward) and 10. At the end you can
#
# * count the multiplications of a layer and the bytes its pullback keeps;
# * say whether an operation waits for arithmetic or for memory;
# * compute attention without ever holding its $T \times T$ matrix.

# %%
device = "numpy"  # on a GPU: "cupy"

import os
import time

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, layers, ops, saved

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
threadpool_limits(1, "blas")  # section 15.5 says why
xp = backend.get_device(device).xp
rng = np.random.default_rng(15)
show = backend.to_numpy


def array(*shape, dtype="float32"):
    return backend.to_device(rng.normal(size=shape).astype(dtype), device)


def seconds(f, repeat=5):
    """The shortest of a few runs. float() of one number of the result makes a GPU finish before the clock is read."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        float(f().reshape(-1)[0])
        best = min(best, time.perf_counter() - start)
    return best


# %% [markdown]
# ## 15.1 Count the arithmetic
#
# ⟦A product of $(n, m)$ and $(m, p)$ takes $n\,m\,p$ multiplications and as many additions: $2nmp$ floating-point
# operations (FLOPs).⟧ Its backward pass is two products of the same size.
#
# > ⟦**Predict first.** An encoder layer, $T = 128$ tokens, $D = 256$, $d_{ff} = 1024$. Which part takes most FLOPs: the
# > four projections, the two products inside attention, or the feed-forward network? At which $T$ does attention itself
# > overtake the network?⟧
#: most FLOPs: the feed-forward network | the projections | inside attention; overtakes at T: 1024


# %% tags=["slide"]
def layer_flops(T, D, d_ff):
    return {"projections": 8 * T * D * D, "scores and mean of values": 4 * T * T * D, "feed-forward": 4 * T * D * d_ff}


for T in (128, 2048, 8192):
    counts = layer_flops(T, 256, 1024)
    total = sum(counts.values())
    print(
        f"T = {T:5d}:",
        ", ".join(f"{part} {count / total:.0%}" for part, count in counts.items()),
        f"of {total / 1e9:.2f} GFLOP",
    )

# %% [markdown]
# ⟦Attention and network are equal where $4 T^2 D = 4 T D\, d_{ff}$, at $T = d_{ff}$.⟧ The quadratic part of attention is
# small until the text is about as long as $d_{ff}$. "Attention is quadratic" is true but, for a sentence, irrelevant.
#
# ## 15.2 Two kinds of work
#
# ⟦A product of $1000 \times 1000$ matrices does $2 \cdot 10^9$ operations on $3 \cdot 10^6$ numbers: each number is used
# again and again. Adding two arrays uses each number once.⟧ The first is limited by arithmetic, the second by memory.
#
# > ⟦**Predict first.** How many operations per second will the product reach, and how many the sum of two arrays?
# > Guess the ratio.⟧

# %% tags=["varies", "slide"]
n = 700
a, b, out = array(n, n), array(n, n), xp.empty((n, n), dtype=xp.float32)
big, other = array(4_000_000), array(4_000_000)
rate = {
    "matrix product": 2 * n**3 / seconds(lambda: a @ b),
    "a + b": big.size / seconds(lambda: big + other),
    "exp(a)": big.size / seconds(lambda: xp.exp(big)),
}
for name, value in rate.items():
    print(f"{name:16s} {value / 1e9:8.2f} billion operations per second")
ratio = rate["matrix product"] / rate["a + b"]
print(f"an operation in a product is {ratio:.0f} times cheaper than one in a sum of arrays")

# %% [markdown]
# ⟦So the parts of a Transformer with hardly any FLOPs (softmax, norms, GELU, dropout, residual sums) may take half of
# the time.⟧ The next section makes such lines cheaper.
#
# ## 15.3 Powers, precision, temporaries
#
# > ⟦**Predict first.** Which is faster for four million numbers: `x**3` or `x * x * x`? float32 or float64? By how much?⟧
#: the faster power: x * x * x | x**3; the faster type: float32 | float64

# %% tags=["varies", "slide"]
x32, x64 = big, big.astype(xp.float64)
a64, b64 = a.astype(xp.float64), b.astype(xp.float64)
times = {
    "x ** 3, float32": seconds(lambda: x32**3),
    "x * x * x, float32": seconds(lambda: x32 * x32 * x32),
    "x * x * x, float64": seconds(lambda: x64 * x64 * x64),
    "a @ b, float32": seconds(lambda: a @ b),
    "a @ b, float64": seconds(lambda: a64 @ b64),
}
for name, value in times.items():
    print(f"{name:20s} {value * 1e3:8.1f} ms")

# %% [markdown]
# ⟦A general power takes a logarithm and an exponential, a product does not.⟧ (Most builds of NumPy treat the square as a
# product, but not the cube.) The tanh form of GELU, used in GPT-2, contains a cube. And half the bytes take about half
# the time, which is why we train in float32 and check in float64.
#
# Each `+` and `*` also allocates a new array. Writing into an old one avoids that:

# %% tags=["varies"]
buffer = xp.empty_like(big)


def with_temporaries():
    return (big * 2.0 + 1.0) * other


def in_place():
    xp.multiply(big, 2.0, out=buffer)
    xp.add(buffer, 1.0, out=buffer)
    return xp.multiply(buffer, other, out=buffer)


print(f"with temporaries {seconds(with_temporaries) * 1e3:.1f} ms, in place {seconds(in_place) * 1e3:.1f} ms")

# %% [markdown]
# The price: `in_place` overwrites what a pullback might still need. In this project no array that a pullback holds is
# ever overwritten, and a test checks it. Work in place only where no pullback holds the array.
#
# ## 15.4 Looking up is easy, adding back is not
#
# ⟦The backward pass of an embedding adds rows to a table, some of them repeatedly (notebook 12).⟧ `np.add.at` adds one
# row after the other. Sorting the ids first brings equal ids together; then each id takes one sum and one write.

# %%
n_tokens, vocabulary, width = 4096, 8000, 64
ids = rng.zipf(1.3, n_tokens) % vocabulary  # a few words are very common
rows = rng.normal(size=(n_tokens, width)).astype(np.float32)


def by_add_at():
    table = np.zeros((vocabulary, width), np.float32)
    np.add.at(table, ids, rows)
    return table


def by_sorting():
    table = np.zeros((vocabulary, width), np.float32)
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    table[in_order[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return table


def by_one_hot():
    one_hot = np.zeros((n_tokens, vocabulary), np.float32)
    one_hot[np.arange(n_tokens), ids] = 1.0
    return one_hot.T @ rows


print(
    "all three agree:",
    np.allclose(by_add_at(), by_sorting(), atol=1e-3),
    np.allclose(by_add_at(), by_one_hot(), atol=1e-3),
)

# %% [markdown]
# > ⟦**Predict first.** Order three ways by time: `np.add.at`; sorting the ids, so that equal ones stand together; the
# > product with a one-hot matrix.⟧

# %% tags=["varies", "slide-code"]
for f in (by_add_at, by_sorting, by_one_hot):
    print(f"{f.__name__:12s} {seconds(f, repeat=2) * 1e3:8.1f} ms")

# %% [markdown]
# ⟦The one-hot product does 8000 times the arithmetic. A matrix product is the fastest thing that the machine can do, but
# it still loses.⟧ (Before NumPy 1.25 `np.add.at` was much slower. Measure with your version.)
#
# ## 15.5 Threads
#
# ⟦BLAS, the library that computes the matrix products, starts a thread for every core.⟧ Distributing a product and
# waiting for the last thread takes some microseconds.
#
# > ⟦**Predict first.** Two $n \times n$ matrices are multiplied, with $n$ = 16, 64, 256 and 700. For which sizes does a
# > second thread help?⟧

# %% tags=["varies", "slide"]
print(f"{'n':>5s}{'1 thread':>12s}{'2 threads':>12s}")
for n in (16, 64, 256, 700):
    p, q = array(n, n), array(n, n)
    inner = max(1, 200 // n)
    line = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            line.append(seconds(lambda p=p, q=q, inner=inner: [p @ q for _ in range(inner)][-1]) / inner)
    print(f"{n:5d}{line[0] * 1e6:10.1f}µs{line[1] * 1e6:10.1f}µs")

# %% [markdown]
# ⟦For small matrices the second thread does not help.⟧ If other programs use the cores it does harm: one thread then
# waits for another that is not running. That is why the notebooks that train small models begin with
# `threadpool_limits(1, "blas")`. It is better to give a second core its own share of the batch: each thread runs a
# whole forward and backward pass, with one BLAS thread.
#
# Element-wise NumPy operations always use one thread only.
#
# ## 15.6 What a pullback keeps alive
#
# ⟦The backward pass needs arrays of the forward pass, so they stay in memory until then.⟧ `saved(backward)` lists the
# arrays that a pullback holds.
#
# > ⟦**Predict first.** Self-attention, $T = 256$, $D = 64$, 4 heads, float32. Which array is the largest? How does it
# > grow with $T$?⟧
#: largest: the weights | q | v | the output; it grows with T to the power: 2

# %%
attention_layer = layers.MultiHeadAttention(64, 4, rng=rng)
y, backward = attention_layer(array(256, 64))
saved(backward)

# %% tags=["slide"]
lengths = [32, 64, 128, 256, 512, 1024]
kept = {"attention": [], "feed-forward": [], "LayerNorm": []}
parts = [attention_layer, layers.FeedForward(64, 256, rng=rng), layers.LayerNorm(64)]
for T in lengths:
    for name, part in zip(kept, parts, strict=True):
        kept[name].append(saved(part(array(T, 64))[1]).total)
figure, ax = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
for name, values in kept.items():
    ax.loglog(lengths, np.array(values) / 1e6, "o-", label=name)
    print(f"{name:13s} from T = 512 to 1024: times {values[-1] / values[-2]:.2f}")
ax.set(xlabel="T", ylabel="kept for backward, MB")
ax.legend()
plt.show()

# %% [markdown]
# ⟦Long before the quadratic part of attention dominates the *time* (15.1), it dominates the *memory*: $H T^2$ numbers.⟧
# (Here only one such array is kept, since without dropout `kept` is the softmax's `y` itself; code that keeps scores,
# weights and dropped weights holds three.) There are three cures.
#
# ⟦**First cure: compute again.** Keep only a layer's input, and run its forward pass again during backward (Chen et al.
# 2016).⟧
#
# > ⟦**Predict first.** An encoder of 6 layers recomputes. How much memory does it save, how much more time
# > does it take?⟧

# %% tags=["varies", "slide"]
x = array(2, 128, 64)
for recompute in (False, True):
    stack = layers.Encoder(6, 64, 4, 256, recompute=recompute, rng=np.random.default_rng(0))
    y, backward = stack(x)
    took = seconds(lambda stack=stack: stack(x)[1](x), repeat=3)
    kept_mb = saved(backward).total / 1e6
    print(f"recompute={recompute!s:5s}  kept {kept_mb:6.2f} MB, forward and backward {took * 1e3:.0f} ms")

# %% [markdown]
# ⟦A forward pass costs about half as much as a backward pass, so a second forward pass makes the total about four
# thirds.⟧
#
# ## 15.7 Second cure: never form the matrix
#
# ⟦Softmax seems to need the whole row of scores: the maximum for stability, the sum for the denominator.⟧ But both can be
# *updated*. Read the keys block by block and keep three things for each query: the largest score so far $m$, the sum
# $\ell = \sum_j e^{s_j - m}$ and the unfinished mean $o = \sum_j e^{s_j - m} v_j$. When a block has a larger maximum
# $m'$, multiply everything so far by $e^{m - m'}$:
#
# ⟦$$\ell \leftarrow \ell\, e^{m - m'} + \sum_{j \in \text{block}} e^{s_j - m'}, \qquad
# o \leftarrow o\, e^{m - m'} + \sum_{j \in \text{block}} e^{s_j - m'}\, v_j, \qquad \text{at the end}\quad y = o /
# \ell$$⟧
#
# (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention".)


# %%
def blockwise_attention(q, k, v, block=64):
    """softmax(q kᵀ / √d_k) v, reading the keys a block at a time: (T_q, block) is the largest array of scores."""
    scale = 1.0 / float(np.sqrt(q.shape[-1]))
    largest = xp.full((len(q), 1), -np.inf, dtype=q.dtype)
    total = xp.zeros((len(q), 1), dtype=q.dtype)
    mean = xp.zeros((len(q), v.shape[-1]), dtype=q.dtype)
    for start in range(0, len(k), block):
        scores = (q @ k[start : start + block].T) * scale
        new_largest = xp.maximum(largest, scores.max(axis=-1, keepdims=True))
        shrink = xp.exp(largest - new_largest)
        weights = xp.exp(scores - new_largest)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        mean = mean * shrink + weights @ v[start : start + block]
        largest = new_largest
    return mean / total


q, k, v = (array(1000, 32, dtype="float64") for _ in range(3))
print("equal to attention:", np.allclose(show(blockwise_attention(q, k, v)), show(ops.attention(q, k, v)[0])))
print(f"scores at a time: {1000 * 64:,d} numbers instead of {1000 * 1000:,d}")

# %% [markdown]
# The block can be so small that it stays in the processor's cache: fewer reads from memory, the same arithmetic. This
# makes such kernels fast, not a smaller number of operations; `minitransformer.fast.accelerate(layer)` gives a layer
# that computes in this way. (Third cure: a local mask, where most blocks need not be computed at all.)
#
# ### How far can it go?
#
# ⟦If a share $p$ of the time can be made faster by a factor $s$, the whole becomes faster by $1 / (1 - p + p/s)$.⟧
#
# > ⟦**Predict first.** Attention takes 30 % of the time, and you make it 10 times faster. How much faster is the whole?⟧
#: times faster: 1.37

# %% tags=["slide"]
for p, s in ((0.3, 10), (0.3, 1e9), (0.7, 2)):
    print(f"{p:.0%} of the time, {s:g} times faster: the whole {1 / (1 - p + p / s):.2f} times")

# %% [markdown]
# ## Exercises
#
# **1.** Write GELU's backward pass; try to do it without a power.

# %%
course.exercise("gelu_backward")


# %%
def gelu_backward(x, dy):
    raise NotImplementedError


course.check("gelu_backward", gelu_backward)

# %% [markdown]
# **2.** How many FLOPs do the forward and backward pass of an encoder layer take together, as a multiple of the forward
# pass? (Count the matrix products.)
#
# **3.** Give `blockwise_attention` a causal mask, and skip the blocks in which everything is masked. Compare it with
# `ops.attention(..., causal=True)`. What share of the blocks is skipped for $T = 1024$ and blocks of 64?


# %%
def causal_blockwise_attention(q, k, v, block=64):
    raise NotImplementedError


try:
    right = np.allclose(show(causal_blockwise_attention(q, k, v)), show(ops.attention(q, k, v, causal=True)[0]))
    print("right" if right else "not yet")
except NotImplementedError:
    print("no answer yet")
