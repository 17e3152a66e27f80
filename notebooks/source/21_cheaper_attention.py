# %% [markdown]
# # 21 Cheaper attention
#
# To write one more token, a model reads the keys and values of all tokens before it. For long texts this memory, not the
# weights, decides how many texts fit into a machine. And to train on $n$ tokens, attention computes $n^2$ scores. This
# notebook measures five ways to pay less, and says what each gives up.
#
# You need notebooks 7 (attention backward), 9 (heads) and 14 (the cache). At the end you can
#
# * compute the bytes of a cache for multi-head, grouped, multi-query, latent, windowed and linear attention;
# * compute a softmax over tiles, without ever seeing a whole row;
# * say which of these methods compute the same function as attention, and which another one.

# %%
device = "numpy"  # on a GPU: "cupy"

import os
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, ideas, layers, ops
from minitransformer.core.arrays.masks import causal_mask, local_mask
from minitransformer.school.show import schematics
from minitransformer.school.show.plots import round_ticks

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
threadpool_limits(1, "blas")
rng = np.random.default_rng(19)
np.set_printoptions(precision=3, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


def same(a, b):
    return np.allclose(show(a), show(b), rtol=1e-9, atol=1e-12)


# %% [markdown]
# ## 21.1 Fewer heads of keys and values
#
# ⟦A layer of width $D = 64$ with $H = 8$ heads of width $d = 8$ reads 100 tokens.⟧ Its cache holds a key and a value for
# each head and token. With **grouped** queries, $G$ heads of keys serve $H / G$ heads of queries each; $G = 1$ is
# **multi-query** attention.
#
# > ⟦**Predict first.** How many numbers does the cache hold for $G = 8$, 2 and 1? Which parameters become fewer?⟧
#: G = 8: 12800; G = 2: 3200; G = 1: 1600

# %% tags=["slide"]
D, H, d, n = 64, 8, 8, 100
x = array(rng.normal(size=(1, n, D)))


def layer_of(kind, *sizes, **options):
    return kind(*sizes, rng=rng, **options).to(dtype="float64")


def numbers(cache):
    parts = [cache.state] if isinstance(cache, ideas.StateCache) else cache.read()
    return sum(part.size for part in parts)


def count(module):
    return sum(p.value.size for _, p in module.parameters())


for groups in (8, 2, 1):
    layer, cache = layer_of(ideas.grouped, D, H, groups), layers.KeyValueCache()
    layer(x, causal=True, cache=cache)
    print(f"G = {groups}: {numbers(cache):6d} = 2·{n}·{groups}·{d} numbers in the cache, {count(layer):6d} parameters")

# %% [markdown]
# Which head of queries reads which keys and values? Take heads of keys that hold their own number and nothing else, and
# share them out as the layer does. ($q_0$ is the first head of queries.)

# %% tags=["slide"]
queries = [f"$q_{h}$" for h in range(H)]
shared = {}
for groups in (8, 2, 1):
    keys = np.repeat(np.eye(groups), H // groups, axis=0)  # row h: the head of keys that head h of queries reads
    shared[f"G = {groups}: cache of 2·{n}·{groups}·{d} numbers"] = (queries, [f"$k_{g}$ $v_{g}$" for g in range(groups)], keys)
schematics.links(shared, 4.4)

# %% [markdown]
# ## 21.2 A latent in place of keys and values
#
# ⟦Keys and values of all heads are linear maps of the same $x_t$.⟧ **Latent attention** keeps one narrow vector
# $c_t = x_t W^{DKV}$ and makes the keys and values of each head from it: $k_h = c\,W_h^{UK}$, $v_h = c\,W_h^{UV}$.
# Positions need a rotated key of their own, which all heads share.
#
# > ⟦**Predict first.** The cache keeps a latent of $d_c = 4d$ numbers and a rotated key of $d/2$ for each of 100 tokens,
# > with $d = 8$. How many numbers? With how many heads of keys would grouped attention hold as many?⟧
#: numbers in the cache: 3600; heads of keys: 2.25

# %% tags=["slide"]
latent, cache = layer_of(ideas.LatentAttention, D, H, d, 4 * d, d // 2), layers.KeyValueCache()
whole = latent(x, causal=True)[0]
pieces = [latent(x[:, i:j], causal=True, cache=cache)[0] for i, j in ((0, 60), (60, 61), (61, 100))]
print("in pieces is the same as all at once:", same(np.concatenate([show(y) for y in pieces], axis=1), whole))
print(f"latent: {numbers(cache)} = {n}·({4 * d} + {d // 2}) numbers in the cache")

# %% tags=["slide"]
boxes = {f"$x_t$: {D} numbers": (0.0, 1.0), f"$c_t$: {4 * d} numbers": (2.4, 1.4), f"rotated key: {d // 2}": (2.4, 0.2)}
of_x, of_c, rotated = boxes
arrows = [(of_x, of_c, 4 * d / D), (of_x, rotated, d / 2 / D)]
for head, place in (("1", 2.2), ("2", 1.4), ("8", 0.2)):
    keys = f"head {head}: $k_{head}$ $v_{head}$, {2 * d} numbers"
    boxes[keys] = (5.4, place)
    arrows += [(of_c, keys, 2 * d / D), (rotated, keys, d / 2 / D)]
schematics.flow(boxes, arrows)

# %% [markdown]
# ⟦Only the middle is kept: $c_t$ and the rotated key, as many numbers as the keys and values of $G = 2.25$ heads.⟧ But
# here each of the 8 heads has keys of its own. (Heads 2 to 6 are not drawn.)
#
# Must the keys be computed again for every token that is written? No: $q_h \cdot (c_t W_h) = (W_h q_h) \cdot c_t$. The
# query is multiplied by $W_h$ once, and then compared with the latents themselves.

# %%
q, c, w_uk = (array(rng.normal(size=shape)) for shape in ((d,), (n, 4 * d), (4 * d, d)))
print("keys made of latents:", c.shape, "@", w_uk.shape, "for every token; the query alone:", (w_uk @ q).shape)
print("the same scores:", same((c @ w_uk) @ q, c @ (w_uk @ q)))

# %% [markdown]
# ## 21.3 A window that rolls, and the tokens it must not lose
#
# ⟦A query that sees only the last $w$ tokens, itself among them, needs only their keys.⟧ A **rolling cache** forgets
# the others, so its memory does not grow. Real models fail when the first tokens leave it: their heads look there when
# they have nothing to do (notebook 17 has such heads). Xiao et al. keep these **sinks** as well. Positions then count
# within the cache: a rotation never sees a distance larger than in training.
#
# A small example first, with $w = 4$, 2 sinks and 12 tokens. All scores are 0, so a query shares its weight evenly among the
# keys that it sees.

# %% tags=["slide"]
visible = {"causal": causal_mask(12), "window of 4": causal_mask(12) & local_mask(12, 3)}
visible["window of 4 and 2 sinks"] = causal_mask(12) & (local_mask(12, 3) | (array(np.arange(12)) < 2))
nothing, eye = array(np.zeros((12, 1))), array(np.eye(12))
schematics.looks({name: show(ops.attention(nothing, nothing, eye, mask)[0]) for name, mask in visible.items()})

# %% [markdown]
# > ⟦**Predict first.** A layer of 8 heads of width 8 has a window of 16 tokens and 4 *sinks*, first tokens that stay. How
# > many numbers are in its cache after 100 tokens? Through three layers without sinks, on how many tokens does the last
# > output depend?⟧
#: numbers: 2560

# %% tags=["slide"]
layer = layer_of(layers.MultiHeadAttention, D, H, turn=ideas.rotary_turn(10000.0), mix=ideas.Window(16))
for sinks in (0, 4):
    cache = ideas.RollingCache(16, sinks)
    read = layer_of(layers.MultiHeadAttention, D, H) if sinks else layer
    rows = [show(read(x[:, t : t + 1], causal=True, cache=cache)[0]) for t in range(n)]
    print(f"window 16, {sinks} sinks: {numbers(cache)} = 2·{16 + sinks}·{D} numbers after {cache.length} tokens")
    if not sinks:
        print("token by token is the same as all at once:", same(np.concatenate(rows, axis=1), layer(x, causal=True)[0]))

# %%
y, pullbacks = x, []
for _ in range(3):
    y, pullback = layer(y, causal=True)
    pullbacks.append(pullback)
dx = np.zeros(x.shape)
dx[0, -1] = 1.0
dx = array(dx)
for pullback in reversed(pullbacks):
    dx = pullback(dx)
print("the last output depends on this many tokens:", int((abs(show(dx)[0]).sum(axis=1) > 0).sum()), "= 3·15 + 1")

# %% [markdown]
# ⟦A head can also be given a sink of its own: a learned score that takes part in the softmax and has no value.⟧
# `MultiHeadAttention(..., mix=ideas.Sink(H))` has one. Then the weights of a query always sum to less than one.

# %%
q, k, v = (array(rng.normal(size=(1, 3, 4))) for _ in range(3))
for score in (-10.0, 0.0, 3.0):
    ones = array(np.ones((1, 3, 1)))
    kept = ideas.sink_attention(q, k, ones, array([score]))[0]
    print(f"sink {score:5.1f}: the weights of the three queries sum to", show(kept)[0, :, 0])

# %% tags=["slide"]
scores = {score: ideas.sink_attention(q, k, array(np.eye(3)[None]), array([score]))[0] for score in (-10.0, 0.0, 3.0)}
with_sink = {}
for score, weights in scores.items():
    weights = show(weights)[0]
    with_sink[f"sink {score:.0f}"] = np.concatenate([1.0 - weights.sum(axis=1, keepdims=True), weights], axis=1)
schematics.looks(with_sink, columns="sink, then the three keys")

# %% [markdown]
# ## 21.4 Linear attention: a state that does not grow
#
# ⟦If the weight of a pair is $\varphi(q_i)\cdot\varphi(k_j)$ and not $\exp(q_i\cdot k_j)$, the sum over the keys can be
# taken first: $\sum_j \varphi(q_i)\cdot\varphi(k_j)\, v_j = \varphi(q_i)^\top \big(\sum_j \varphi(k_j) v_j^\top\big)$.⟧
# Here $\varphi(x)$ is $x + 1$ for $x > 0$ and $e^x$ otherwise, so that all weights are positive. They are divided by their
# sum, $\varphi(q_i)\cdot\sum_j \varphi(k_j)$. So the matrix in brackets and the vector $\sum_j \varphi(k_j)$ are all that must
# be kept. Attention has become a recurrent layer.
#
# > ⟦**Predict first.** How many numbers does the state of 8 heads hold after 100 tokens? After 10,000? From which length on
# > are they fewer than the numbers of keys and values?⟧
#: after 100 tokens: 576; after 10,000 tokens: 576

# %% tags=["slide"]
linear, cache = layer_of(ideas.LinearAttention, D, H), ideas.StateCache()
rows = [show(linear(x[:, t : t + 1], cache=cache)[0]) for t in range(n)]
print("as a recurrence and as a product the same:", same(np.concatenate(rows, axis=1), linear(x)[0]))
print(f"{numbers(cache)} = {H}·{d}·({d} + 1) numbers after {cache.length} tokens")

# %% [markdown]
# ⟦From 5 tokens on the state is smaller than keys and values, $2 n H d$ numbers.⟧ The price: it is another function. Larger queries and keys sharpen a
# softmax exponentially, this one only as a power of their size. Here 16 keys are one-hot vectors, times a number; the
# query is one of them, and we print the largest weight of the last query, since linear attention looks back only.

# %%
keys = array(np.eye(16))
eyes = array(np.eye(16))
for size in (1.0, 5.0, 20.0):
    asked = array(np.tile(np.eye(16)[3], (16, 1))) * size
    sharp = show(ops.attention(asked, keys * size, eyes, scale=1.0)[0])[-1].max()
    flat = show(ideas.linear_attention(asked, keys * size, eyes)[0])[-1].max()
    print(f"times {size:4.0f}: softmax gives the right key {sharp:.3f}, linear attention {flat:.3f}")

# %% [markdown]
# ## 21.5 Flash attention: the same function, without the square
#
# ⟦Training needs all $n$ queries at once. Attention keeps $n^2$ weights for backward.⟧ But a softmax does not need the
# whole row at once. Keep the largest score $m$ so far and the sum $l$ of $e^{s - m}$; when a larger score comes,
# multiply the old sum by $e^{m - m'}$.
#
# > ⟦**Predict first.** Scores 1, 3 in the first tile, 5, 2 in the second. After each tile, what are the largest score so
# > far, $m$, and the sum $l$ of $e^{s - m}$ over all scores $s$ so far?⟧
#: m after the first tile: 3; l after the first tile: 1.14
#: m after the second tile: 5; l after the second tile: 1.20

# %% tags=["slide"]
m, total = -np.inf, 0.0
for tile in ([1.0, 3.0], [5.0, 2.0]):
    new = max(m, *tile)
    total = total * np.exp(m - new) + np.exp(np.array(tile) - new).sum()
    m = new
    print(f"after {tile}: m = {m}, l = {total:.4f}")
print(f"the whole row at once: l = {np.exp(np.array([1.0, 3.0, 5.0, 2.0]) - 5.0).sum():.4f}")

# %% [markdown]
# ⟦Backward recomputes each tile of weights from $m + \log l$, one number for each query.⟧ So flash attention computes
# more and keeps less.
#
# > ⟦**Predict first.** From $n = 256$ to 2048: by which factor does the memory that is kept grow for attention, and for
# > flash attention? And the peak memory?⟧


# %%
def memory(op, n):
    """Bytes kept between forward and backward, and at the worst moment."""
    q = rng.normal(size=(n, 16)).astype(np.float32)
    tracemalloc.start()
    y, backward = op(q, q, q, causal=True)
    kept = tracemalloc.get_traced_memory()[0]
    backward(q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return kept, peak


q, k, v, dy = (array(rng.normal(size=(200, 16))) for _ in range(4))
(y, backward), (flash, flash_backward) = (op(q, k, v, causal=True) for op in (ops.attention, ideas.flash_attention))
print("outputs are equal:", same(y, flash), " gradients:", [same(a, b) for a, b in zip(backward(dy), flash_backward(dy), strict=True)])
lengths = [256, 512, 1024, 2048]
found = {op.__name__: np.array([memory(op, n) for n in lengths]) for op in (ops.attention, ideas.flash_attention)}

# %% tags=["varies"]
for name, table in found.items():
    print(f"{name:16s} keeps", *(f"{kept / 1e3:9.0f}" for kept in table[:, 0]), "kB")
    print(f"{'':16s} peak ", *(f"{peak / 1e3:9.0f}" for peak in table[:, 1]), "kB")

# %% tags=["slide"]
figure, ax = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
for name, table in found.items():
    ax.loglog(lengths, table[:, 1], marker=".", label=name)
ax.set(xlabel="length n", ylabel="bytes at the worst moment")
round_ticks(ax.yaxis)
ax.set_xticks(lengths, lengths, minor=False)
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# ⟦About 64 and 8. Attention has some memory that does not grow with $n^2$, and the tiles of flash attention do not grow at
# all, so both stay below.⟧
#
# ## 21.6 All together
#
# ⟦The bytes of a cache after 300 tokens, in float32, with 8 heads of width 8; grouped: 2 heads of keys; the window has 128
# tokens.⟧ `minitransformer compare cache` makes this table for other sizes, and measures it. Which rows would you choose
# for a text of 100,000 tokens, and what would you have to train again?

# %% tags=["slide"]
from minitransformer.school.compare.caches import KINDS, measured, predicted

print(f"{'':18s}{'bytes predicted':>16s}{'measured':>10s}")
for name in KINDS:
    print(f"{name:18s}{predicted(name, 300, 64, 8):16d}{measured(name, 300, 64, 8)[0]:10d}")

# %% [markdown]
# ⟦| | the same function as multi-head attention? | cache | memory for backward |
# |---|---|---|---|
# | grouped, multi-query | no: heads share keys and values | smaller by $H / G$ | $n^2$ |
# | latent | no: keys and values have a low rank | $d_c + d_R$ per token (latent and rotated key) | $n^2$ |
# | window, sinks | no: most tokens are hidden | does not grow | $n^2$ under a mask, $n$ in blocks |
# | linear | no: other weights | does not grow | $n$ |
# | flash | **yes**, up to rounding | the same | $n$ |⟧

# %% [markdown]
# ## Exercises

# %%
course.exercise("online_softmax_step")


# %%
def online_softmax_step(q, k, v, largest, total, found):
    raise NotImplementedError


course.check("online_softmax_step", online_softmax_step)

# %%
course.exercise("linear_attention_forward")


# %%
def linear_attention_forward(q, k, v):
    raise NotImplementedError


course.check("linear_attention_forward", linear_attention_forward)

# %%
course.exercise("latent_scores")


# %%
def latent_scores(q, q_place, latent, place, w_uk):
    raise NotImplementedError


course.check("latent_scores", latent_scores)

# %% [markdown]
# **4.** There are four more exercises, `alibi_bias`, `sink_attention_backward`, `normed_scores_backward` and
# `rolling_cache_scores`. To see one, run `course.exercise("rolling_cache_scores")`.
#
# **5 (discussion).** A window of $w$ in each of $L$ layers lets a token reach $L(w - 1)$ positions back. Why is that
# not as good as attention over as many positions?
