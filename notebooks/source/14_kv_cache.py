# %% [markdown]
# # 14 The key-value cache
#
# A decoder writes one token at a time. A naive decoder computes the whole prefix again for every token. This notebook
# finds out which part of that work is the same each time, keeps its results in a *KV cache*, and shows that the output
# does not change.
#
# You need notebooks 6 and 8 (attention, the causal mask) and 13 (a decoder). At the end you can
#
# * say why keys and values can be kept, why queries need not be, and why an encoder has no cache;
# * count the work and the memory, with and without;
# * test a cache: it must agree with full attention up to rounding, however the text is cut into pieces.

# %%
device = "numpy"  # on a GPU: "cupy"

import os
import time

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, layers, masks, models, ops, verify

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters, and masks
threadpool_limits(1, "blas")
rng = np.random.default_rng(14)
np.set_printoptions(precision=3, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


def ids_of(x):
    return backend.to_device(np.asarray(x), device)


def same(a, b):
    return np.allclose(show(a), show(b), rtol=1e-9, atol=1e-12)


# %% [markdown]
# ## 14.1 What changes when a token is added?
#
# ⟦Four tokens go through causal attention, then the same four tokens and a fifth.⟧
#
# > ⟦**Predict first.** Which rows of $q$, $k$, $v$, of the weights and of the output differ between the two runs?⟧
#: the first four rows of each: stay the same | differ

# %% tags=["slide"]
tokens = array(rng.normal(size=(5, 8)))
attention_layer = layers.MultiHeadAttention(8, 2, rng=rng).to(dtype="float64")


def inside(name, x, causal=True):
    return verify.values_inside(name, attention_layer, x, causal=causal)[0]


for name in ("q", "k", "v", "y"):
    before, after = inside(name, tokens[:4]), inside(name, tokens)
    print(
        f"{name}: {before.shape} -> {after.shape}, the first four rows are the same:", same(before, after[..., :4, :])
    )

# %% [markdown]
# ⟦The old rows do not change. Row $i$ of each array depends on tokens $0..i$ alone; that is what causal *means*.⟧ Only
# row 4 is new: one query, one key and one value. The new output
#
# ⟦$$y_4 = \mathrm{softmax}\Big(\tfrac{1}{\sqrt{d_k}}\; q_4\, [k_0, \dots, k_4]^\top\Big)\, [v_0, \dots, v_4]$$⟧
#
# needs all keys and values, but only its own query. The old queries are never needed again.
#
# > ⟦**Predict first.** Without the causal mask, as in an encoder: which rows of the output are the same?⟧
#: k: is the same | differs; v: is the same | differs; output: differs | is the same

# %% tags=["slide"]
for name in ("k", "v", "y"):
    before, after = inside(name, tokens[:4], causal=False), inside(name, tokens, causal=False)
    print(f"{name}: the first four rows are the same:", same(before, after[..., :4, :]))

# %% [markdown]
# ⟦The keys and values of this *first* layer stay the same, but every output changes, and with it everything that the
# next layer computes.⟧ So an encoder has nothing to keep.
#
# ## 14.2 A cache by hand
#
# ⟦One head, one token at a time: `keys` and `values` grow by a row each time.⟧

# %% tags=["slide-code"]
w_q, w_k, w_v = (array(rng.normal(size=(8, 4))) for _ in range(3))
keys, values, outputs = [], [], []
for x in tokens:
    keys.append(x @ w_k)
    values.append(x @ w_v)
    k, v = np.stack([show(key) for key in keys]), np.stack([show(value) for value in values])
    scores = show(x @ w_q) @ k.T / np.sqrt(4)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    outputs.append(weights @ v)

full = ops.attention(tokens @ w_q, tokens @ w_k, tokens @ w_v, causal=True)[0]
print("token by token is the same as all at once:", same(array(outputs), full))

# %% [markdown]
# Where is the causal mask? **None is needed.** While the cache holds only the past, a query cannot see the future.
#
# ## 14.3 The library's cache, and several tokens at once
#
# ⟦A prompt comes in one piece, then the tokens follow one by one.⟧ So a cache must accept pieces of any length: in a
# piece of $T_q$ tokens with $T_k$ keys, query $i$ is at position $i + T_k - T_q$.
#
# > ⟦**Predict first.** Write down the causal mask for 2 new queries on 5 keys.⟧
#: row 0: (1, 1, 1, 1, 0); row 1: (1, 1, 1, 1, 1)

# %% tags=["slide-code"]
print(show(masks.causal_mask(2, 5)).astype(int))

# %%
config = models.LanguageModelConfig(
    50, max_length=256, d_model=32, n_heads=4, d_ff=64, n_layers=3, dropout=0.0, attention_dropout=0.0
)
model = models.LanguageModel(config, rng).to(dtype="float64")
ids = rng.integers(0, 50, (2, 12))
all_at_once = show(model(ids_of(ids))[0])
for pieces in ([1] * 12, [7, 1, 1, 1, 1, 1], [3, 4, 5], [12]):
    cache, logits, start = layers.Cache(config.n_layers), [], 0
    for length in pieces:
        logits.append(show(model(ids_of(ids[:, start : start + length]), cache=cache)[0]))
        start += length
    print(f"pieces {pieces}: equal", np.allclose(np.concatenate(logits, axis=1), all_at_once, rtol=1e-9, atol=1e-11))

# %% [markdown]
# **This is the test of a cache**, and it needs no reference but the model itself. Try it on three mistakes. Each of
# them is harmless for at least one way of cutting. The third needs sinusoidal positions, so we test it in the decoder
# of a translator.
#
# > ⟦A cache must give what the whole text gives at once. Three mistakes: it returns the new keys alone; the mask takes
# > the first new query for position 0; the positions of each piece begin at 0. **Predict first.** Twelve tokens come in
# > one piece; one by one; 7 and then one by one; or as 3, 4 and 5. Which way of cutting finds none of the mistakes?⟧
#: finds none: one piece | one by one | 7, then 1 | 3, 4, 5

# %% tags=["slide"]
translator = models.Transformer(
    models.TransformerConfig(
        50, 50, d_model=32, n_heads=4, d_ff=64, n_encoder_layers=1, n_decoder_layers=2, dropout=0.0
    ),
    rng,
).to(dtype="float64")
memory = translator.encode(ids_of(ids))[0]
runs = {
    "language model": (lambda piece, cache=None: show(model(ids_of(piece), cache=cache)[0]), 3),
    "translator": (lambda piece, cache=None: show(translator.decode(ids_of(piece), memory, cache=cache)[0]), 2),
}


def agrees(kind, pieces):
    run, n_layers = runs[kind]
    cache, logits, start = layers.Cache(n_layers), [], 0
    for length in pieces:
        logits.append(run(ids[:, start : start + length], cache))
        start += length
    return "equal" if np.allclose(np.concatenate(logits, axis=1), run(ids), atol=1e-9) else "DIFFERENT"


print(f"{'':38s}{'one piece':>12s}{'one by one':>12s}{'7, then 1':>12s}{'3, 4, 5':>12s}")
for name, kind in (
    ("cache-returns-new-tokens-only", "language model"),
    ("mask-forgets-earlier-keys", "language model"),
    ("sinusoidal-positions-start-forgotten", "translator"),
):
    with course.MISTAKES[name].applied():
        verdicts = [agrees(kind, pieces) for pieces in ([12], [1] * 12, [7] + [1] * 5, [3, 4, 5])]
    print(f"{name:38s}" + "".join(f"{verdict:>12s}" for verdict in verdicts))
    print("    ", course.MISTAKES[name].sentence)

# %% [markdown]
# ## 14.4 Counting the work
#
# ⟦We count a multiply-add as one operation.⟧ Per layer, for a prefix of $T$ tokens of width $D$ with $d_{ff} = 4D$, the
# projections and the network cost $12 D^2$ per token, attention $2 D T$ per query.
#
# ⟦| to write token $T + 1$ | linear maps | attention |
# |---|---|---|
# | without cache, the whole prefix again | $12 D^2 T$ | $2 D T^2$ |
# | with cache, one token | $12 D^2$ | $2 D T$ |⟧
#
# > ⟦**Predict first.** A model writes 1000 tokens without a prompt. By about which factor does the cache reduce the
# > multiplications?⟧

# %% tags=["slide"]
D, n_layers, length = 768, 12, 1000
T = np.arange(1, length + 1)
without = n_layers * np.cumsum(12.0 * D**2 * T + 2.0 * D * T**2)
with_cache = n_layers * np.cumsum(12.0 * D**2 + 2.0 * D * T)
print(f"GPT-2's smallest, 1000 tokens: {without[-1]:.2e} and {with_cache[-1]:.2e}", end=", ")
print(f"a factor of {without[-1] / with_cache[-1]:.0f}")
figure, ax = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
ax.loglog(T, without, label="without cache: T²")
ax.loglog(T, with_cache, label="with cache: T")
ax.set(xlabel="tokens written", ylabel="multiply-adds so far")
ax.legend()
plt.show()

# %% [markdown]
# ⟦About half of 1000, since the average prefix has half the length.⟧ Is the count right? Count the rows that really go
# through the linear maps of our small model.

# %%
rows = {}
for label, use_cache in (("without cache", False), ("with cache", True)):
    cache, count = layers.Cache(config.n_layers), 0
    for t in range(12):
        new = ids[:1, t : t + 1] if use_cache else ids[:1, : t + 1]
        seen = verify.values_inside("hidden", model, ids_of(new), cache=cache if use_cache else None)
        count += sum(value.size // value.shape[-1] for value in seen if value.shape[-1] == config.d_ff)
    rows[label] = count
    print(f"{label:14s} {count} rows through the feed-forward networks of 3 layers")
print("12 tokens:", 3 * 12 * 13 // 2, "=  3 · (1 + 2 + … + 12), and", 3 * 12)

# %% [markdown]
# ## 14.5 The clock
#
# ⟦Counted work and elapsed time are not the same thing.⟧ (On a GPU the clock must wait for the device; `float` of a
# result does.)
#
# > ⟦**Predict first.** 120 tokens with our small model. The count says a factor of 60. What will the clock say?⟧


# %%
def write(n, use_cache):
    """Write n tokens greedily from token 1; returns the ids."""
    cache = layers.Cache(config.n_layers) if use_cache else None
    written = [1]
    for _ in range(n):
        prefix = written[-1:] if use_cache else written
        logits = model(ids_of([prefix]), cache=cache)[0]
        written.append(int(logits[0, -1].argmax()))
    return written


print("the same text:", write(120, True) == write(120, False))

# %% tags=["varies", "slide"]
seconds = {}
for label, use_cache in (("without cache", False), ("with cache", True)):
    start = time.perf_counter()
    write(120, use_cache)
    seconds[label] = time.perf_counter() - start
    print(f"{label:14s} {seconds[label]:.2f} s")
print(f"a factor of {seconds['without cache'] / seconds['with cache']:.1f}")

# %% [markdown]
# Far from 60. A model this small spends its time on calls to NumPy, not on multiplications. And a single row uses the
# machine badly: the whole matrix must be read from memory to use each weight once. The next notebook is about this.
# Large models do save the full factor of work, and are then limited by reading the weights and the cache from memory.
#
# ## 14.6 The price is memory
#
# ⟦$$\text{bytes} = 2 \cdot \text{layers} \cdot T \cdot D \cdot \text{bytes per number}$$⟧
#
# ⟦The 2 stands for keys and values; the number of heads does not appear, since $H d_k = D$.⟧
#
# > ⟦**Predict first.** How many bytes does the smallest GPT-2 need (12 layers, $D = 768$), in float32, with 1024 tokens?
# > And a model of 80 layers, $D = 8192$, in float16, with 32,768 tokens?⟧
#: GPT-2, in GB: 0.08; 80 layers, in GB: 85.9

# %% tags=["slide"]
for name, n, width, length, size in (("GPT-2 small", 12, 768, 1024, 4), ("80 layers, D 8192", 80, 8192, 32768, 2)):
    print(f"{name:18s} {2 * n * length * width * size / 1e9:7.2f} GB for one text")

cache = layers.Cache(config.n_layers)
model(ids_of(ids[:1]), cache=cache)
read = [part for layer in cache.self_attention for part in layer.read()]
print("ours, by the formula:", 2 * 3 * 12 * 32 * 8, "bytes; in the cache:", sum(part.nbytes for part in read), "bytes")

# %% [markdown]
# ⟦Several inventions make the cache smaller: several query heads that share one key head (Shazeer 2019, "Fast
# Transformer Decoding"), fewer bits per number, a window of the last tokens (the local mask of notebook 8).⟧
#
# ## 14.7 A translator has two caches
#
# ⟦In an encoder-decoder each layer attends twice. The cache of self-attention grows; that of cross-attention is computed
# **once**: the memory does not change while the translation is written.⟧

# %%
decoder = layers.Decoder(2, 8, 2, 16, rng=rng).to(dtype="float64")
memory, x = array(rng.normal(size=(1, 4, 8))), array(rng.normal(size=(1, 10, 8)))
cache, rows = layers.Cache(2), []
for t in range(10):
    rows.append(show(decoder(x[:, t : t + 1], memory, cache=cache)[0]))
print("equal to all at once:", same(np.concatenate(rows, axis=1), decoder(x, memory)[0]))
print("length of the caches: self", cache.self_attention[0].length, " cross", cache.cross_attention[0].length)
try:
    decoder(x[:, :1], array(rng.normal(size=(1, 4, 8))), cache=cache)
except ValueError as error:
    print("another memory:", error)

# %% [markdown]
# And there is no backward pass: a call with a cache keeps nothing for the gradient.

# %%
try:
    model(ids_of(ids[:, :1]), cache=layers.Cache(config.n_layers))[1](all_at_once)
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## Exercises

# %%
course.exercise("kv_cache_step")


# %%
def kv_cache_step(x, keys, values, w_q, w_k, w_v):
    raise NotImplementedError


course.check("kv_cache_step", kv_cache_step)

# %% [markdown]
# **2.** `extend` in `core/layers/cache.py` doubles its buffer when it is full, instead of growing it by one row each time.
# For both methods, count the rows copied while 1024 rows are appended one by one. Fill in the function; the cell says
# whether you are right.


# %%
def numbers_copied(n, doubling):
    """Rows copied to a new place while n rows are appended one by one, from a buffer that first has room for one."""
    raise NotImplementedError


try:
    right = (numbers_copied(1024, doubling=False), numbers_copied(1024, doubling=True)) == (1023 * 1024 // 2, 1023)
    print("right" if right else "not yet")
except NotImplementedError:
    print("no answer yet")

# %% [markdown]
# **3 (discussion).** A beam search keeps the four best beginnings. Each step may continue one of them in two ways and
# drop another. What must happen to the cache?
