# %% [markdown]
# # 24 What a memory holds
#
# Attention keeps every key and every value, and looks at all of them for each new token. Most layers of today's hybrids,
# such as Qwen3.5, keep one matrix instead, whose size does not grow. What can such a matrix remember, and what must it
# forget? Three rules answer this differently: linear attention adds, the delta rule corrects, the gated delta rule also
# fades.
#
# After this hour you can
#
# - say what each rule returns for a key that was written once, twice, or long ago;
# - read a picture of what a memory holds;
# - compute a chunk of the delta rule at once, as a system of equations;
# - say from which length on a memory is smaller than a cache of keys and values.
#
# You need: attention by hand (6), the cache (14), cheaper attention (21).

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import course, ideas
from minitransformer.ideas.after.chunked_delta import chunked_delta

threadpool_limits(1)
np.set_printoptions(precision=3, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Write and read
#
# ⟦The memory is a matrix $S$ of $d_k \times d_v$ numbers. To *write* a value $v$ under a key $k$, add $k\,v^\top$. To
# *read* what stands under a key, compute $S^\top k$.⟧ That is linear attention, without features and without a quotient.
#
# ⟦**Predict first.** Under $k = (1, 0)$ we write $(5, 6)$, and later $(7, 8)$, again under $k = (1, 0)$. What do we read
# under $k$?⟧
#: we read: (12, 14)

# %% tags=["slide-code"]
k = np.array([1.0, 0.0])
memory = np.outer(k, [5.0, 6.0]) + np.outer(k, [7.0, 8.0])
print("read:", memory.T @ k)

# %% [markdown]
# ⟦The sum. Nothing says that the second value was to replace the first.⟧
#
# ⟦The *delta rule* first reads what stands under the key, and writes only the difference, times a rate $\beta$:⟧
#
# ⟦$$ \text{error} = v - S^\top k, \qquad S' = S + \beta\, k\, \text{error}^\top $$⟧
#
# ⟦**Predict first.** What do we read after both values with $\beta = 1$? And with $\beta = \frac12$, where the memory starts
# empty?⟧
#: with β = 1: (7, 8); with β = 1/2: (4.75, 5.5)

# %% tags=["slide"]
for beta in (1.0, 0.5):
    memory = np.zeros((2, 2))
    for value in ([5.0, 6.0], [7.0, 8.0]):
        error = value - memory.T @ k
        memory = memory + beta * np.outer(k, error)
    print(f"β = {beta}: read {memory.T @ k}")

# %% [markdown]
# ⟦With $\beta = 1$ the new value replaces the old one.⟧ With $\frac12$ each write goes half of the way: $(2.5, 3)$, then
# halfway from there to $(7, 8)$. Written out, $S' = S + \beta k (v - S^\top k)^\top$ is a step of gradient descent on
# $\frac12 \lVert S^\top k - v \rVert^2$, with the learning rate $\beta$: the memory *learns* the pair.
#
# ⟦The *gated* delta rule lets the memory fade before each step: $S$ is multiplied by $e^{\text{decay}}$, with a decay that
# is never positive.⟧
#
# ⟦**Predict first.** Something was written $n$ steps ago, and no key since was like its own. With a decay of $-0.1$, after how
# many whole steps is less than half of it left?⟧
#: steps: 7

# %% tags=["slide"]
left = np.exp(-0.1 * np.arange(12))
print(f"left after 6 steps {left[6]:.3f}, after 7 steps {left[7]:.3f}")

# %% [markdown]
# ⟦$e^{-0.6} = 0.55$ and $e^{-0.7} = 0.497$.⟧ A model computes decay and $\beta$ of each token. So it decides at each token
# how much to forget and how much to write.
#
# ## What the memory holds
#
# Now 48 tokens write into memories with keys of width 16. We give each token its own value, a vector with a single 1 at the
# token's own place. So what we read under the key of token $j$ can be looked at place by place: place $j$ is what is left of
# token $j$, and all other places are *interference*, pieces of other tokens that lie under similar keys.
#
# The keys have random directions, and length 1. Two of them, however, are the same: token 30 writes under the key of
# token 10.
#
# ⟦**Predict first.** 48 keys do not fit at right angles into 16 dimensions, and token 30 has the key of token 10. Which of
# linear attention, the delta rule and the gated rule loses the most of token 10 when token 30 has written?⟧
#: token 10 is replaced by: the delta rule | linear attention

# %%
rng = np.random.default_rng(4)
n, d = 48, 16
keys = rng.normal(size=(n, d))
keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
keys[30] = keys[10]
values = np.eye(n)


def memories(decay, beta, correct=True):
    """The memory after each token, (n, d, n): of the gated delta rule, or without its correction."""
    memory, found = np.zeros((d, n)), []
    for k, v in zip(keys, values, strict=True):
        memory = np.exp(decay) * memory
        memory = memory + beta * np.outer(k, v - correct * (memory.T @ k))
        found.append(memory)
    return np.stack(found)


rules = {
    "linear attention": memories(0.0, 1.0, correct=False),
    "delta rule, β = 0.9": memories(0.0, 0.9),
    "gated, decay -0.05": memories(-0.05, 0.9),
}

# %% tags=["slide"]
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained", sharey=True)
for ax, (name, each) in zip(axes, rules.items(), strict=True):
    held = np.stack([(keys @ memory).diagonal() for memory in each])  # row: after token t; column: of token j
    held[np.triu_indices(n, 1)] = np.nan  # not written yet
    image = ax.imshow(held, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    ax.set(title=name, xlabel="what is left of token j")
axes[0].set_ylabel("after token t")
figure.colorbar(image, ax=axes, shrink=0.8)
plt.show()

# %% [markdown]
# ⟦Linear attention keeps all of every token, for ever. The delta rule wears tokens away, and replaces token 10 at once when
# token 30 comes. The gated rule lets all of them fade.⟧ So linear attention remembers best? Look at the other places.
#
# ⟦**Predict first.** We read under the key of the *newest* token. After 48 tokens, how much of what we read is interference
# under linear attention: less than the value itself, or more?⟧
#: the interference is: larger than the value | smaller than the value

# %% tags=["slide"]
print("after token        ", "  ".join(f"{t + 1:5d}" for t in (3, 15, 31, 47)))
for name, each in rules.items():
    wrong = [np.linalg.norm(np.delete(keys[t] @ each[t], t)) for t in (3, 15, 31, 47)]
    print(f"{name:20s}", "  ".join(f"{x:5.2f}" for x in wrong))

# %% [markdown]
# ⟦The value has length 1. Linear attention returns more noise than value, and the noise grows with every token; the delta
# rule returns nearly the newest value alone.⟧ A sum cannot make room. The delta rule makes room where the new key points:
# whatever lay there before, of any token, is overwritten by a share of $\beta$. The gate also clears what no key will ever
# overwrite. This is why the hybrids use both.
#
# A number for it: read under *all* keys so far, and compare each with its own newest value.

# %% tags=["slide"]
figure, ax = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
for name, each in rules.items():
    wrong = [np.linalg.norm(keys[t - 3 : t + 1] @ each[t] - values[t - 3 : t + 1], axis=-1).mean() for t in range(3, n)]
    ax.plot(np.arange(3, n), wrong, label=name)
ax.set(xlabel="after token t", ylabel="error, the last 4 tokens", ylim=(0.0, None))
ax.legend()
plt.show()

# %% [markdown]
# ⟦For the last four tokens the correction that a delta rule makes matters most.⟧ A model that needs a token from far
# back, word for word, is not served by any of the three: every hybrid has some layers that attend.
#
# ## A chunk at once
#
# Token by token, each error waits for the one before. But within a chunk of $C$ tokens the errors obey linear equations:
# an early error, times how much its key overlaps with a later key, is missing in the later error.
#
# ⟦$$ \text{error}_t + \sum_{s<t} (k_t \cdot k_s)\, \beta_s\, \text{error}_s = v_t - S^\top k_t $$⟧
#
# ⟦**Predict first.** If all keys of a chunk are at right angles, what is the matrix of this system?⟧
#: the matrix is: the identity | triangular, with ones below the diagonal | zero

# %% tags=["slide"]
right_angles = np.eye(4)
print(np.eye(4) + np.tril(right_angles @ right_angles.T, -1) * 0.9)

# %% [markdown]
# ⟦The identity: then no token of the chunk is in another's way.⟧ In general it is triangular, and `chunked_delta` solves it
# with a few products of matrices. The result must be that of the recurrence.

# %% tags=["varies"]
length, width = 512, 64
q, k, v = rng.normal(size=(3, 4, length, width))
k /= np.linalg.norm(k, axis=-1, keepdims=True)
decay, beta = -rng.exponential(0.1, size=(4, length)), rng.random((4, length))
seconds = {}
for name, f, rates in (("recurrence", ideas.gated_delta, decay[..., None]), ("chunks of 64", chunked_delta, decay)):
    began = time.perf_counter()
    output, backward = f(q, k, v, rates, beta)
    gradients = backward(np.ones_like(output))
    seconds[name] = time.perf_counter() - began
    print(f"{name:13s} {1000 * seconds[name]:6.0f} ms, |output| {np.linalg.norm(output):.3f}, |dk| {np.linalg.norm(gradients[1]):.3f}")

# %% [markdown]
# Both have the same output and the same gradients; the page *The delta rule in chunks* derives them.
#
# ## What it costs to write a text
#
# A head that attends keeps $2\,d$ numbers for each token. A memory keeps $d_k \times d_v$ numbers, and does not grow.
#
# ⟦**Predict first.** With $d = d_k = d_v = 128$, from how many tokens on does a head's memory take less room than its keys
# and values?⟧
#: tokens: 65

# %% tags=["slide"]
d = 128
for tokens in (64, 65, 1024, 131_072):
    print(f"{tokens:7d} tokens: keys and values {2 * d * tokens:11,d} numbers, memory {d * d:,d}")

# %% [markdown]
# ⟦From the 65th on. At 131,072 tokens it is one in 2048.⟧ Qwen3.5 has such a memory in three of four layers, so a long text
# costs it about a quarter of what it would cost if all layers attended.

# %% [markdown]
# ## Exercises

# %%
course.exercise("delta_chunk_backward")


# %%
def delta_chunk_backward(k, v, beta, dmemory):
    raise NotImplementedError


course.check("delta_chunk_backward", delta_chunk_backward)

# %% [markdown]
# **2.** On paper: show that with $\beta = 1$ and a key of length 1, reading under this key right after a write returns
# exactly the value. What if the key has length 2?
#
# **3.** The memory starts empty, and $C$ tokens write under the *same* key of length 1, with $\beta = \frac12$. Which share of
# the first value is left?
#
# **4 (discussion).** A hybrid answers a question about a telephone number at the start of a long text. Which of its layers can
# know it?
