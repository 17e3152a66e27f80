# %% [markdown]
# # 9 Many heads, and a memory to read
#
# One head of attention takes one weighted mean per query. This notebook puts several heads side by side (multi-head
# attention), shows what the reshapes between them really do, and lets one sequence read another.
#
# You need notebooks 6 and 7 (attention, forward and backward) and 8 (masks). At the end you can
#
# * split a width into heads and merge it again, and say why each is the other's pullback;
# * say how much a head's value path can carry, and write it as one low-rank matrix;
# * say which shape every array of cross-attention has, and which gradients add up in the memory.

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, ideas, layers, ops, step, verify

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
rng = np.random.default_rng(9)
np.set_printoptions(precision=3, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


def same(a, b):
    return np.allclose(show(a), show(b), rtol=1e-9, atol=1e-12)


# %% [markdown]
# ## 9.1 Why one head is not enough
#
# ⟦A pronoun wants two things at once: from token 0 *who* it stands for, from token 2 *how many*.⟧ Here "who" is the first
# column of the values and "how many" the second.
#
# > ⟦**Predict first.** The values of three tokens are `[8, 0]`, `[0, 0]` and `[0, 6]`. One head gives weight ½ to token 0
# > and ½ to token 2. What does it output? Can any three weights that sum to one give `[8, 6]`?⟧
#: the head outputs: (4, 3); three weights can give [8, 6]: no

# %% tags=["slide"]
values = array([[8.0, 0.0], [0.0, 0.0], [0.0, 6.0]])  # token 0: who; token 2: how many
one_head = array([[0.5, 0.0, 0.5]])
print("one head: ", show(one_head @ values))

who = array([[1.0, 0.0, 0.0]]) @ values[:, :1]
how_many = array([[0.0, 0.0, 1.0]]) @ values[:, 1:]
print("two heads:", np.concatenate([show(who), show(how_many)], axis=1))

# %% [markdown]
# ⟦One set of weights mixes whole rows. To take all of column 0 from token 0, it must give token 0 the weight 1, and then
# nothing is left for token 2.⟧ With two heads, each has its own weights for its own columns.
#
# ⟦$$\text{head}_h = \mathrm{softmax}\!\Big(\frac{x W_Q^{(h)} (x W_K^{(h)})^\top}{\sqrt{d_k}}\Big)\, x W_V^{(h)}, \qquad
# y = [\text{head}_1 \mid \dots \mid \text{head}_H]\; W_O$$⟧
#
# (Vaswani et al. 2017, section 3.2.2.) The width is divided among the heads, $d_k = d_v = D/H$, so that $H$ heads cost
# as much as one.
#
# ## 9.2 Split and merge
#
# ⟦All $H$ projections stand side by side in one matrix $W_Q$ of shape $(D, H d_k)$: one product makes them all.⟧ Then the
# result has to be cut. To see where each number goes, let it be its own address: row $t$, column $c$ holds $10 t + c$.

# %% tags=["slide-given"]
x = array([[10 * t + c for c in range(4)] for t in range(3)])
print(show(x), "  3 tokens, width 4 = 2 heads × 2\n")
heads, split_backward = ops.split_heads(x, 2)
print(show(heads), "  shape", heads.shape)

# %% [markdown]
# Head 1 holds the first two columns of **every** token, head 2 the last two of every token.
#
# > ⟦**Predict first.** The shape we want is `(2, 3, 2)`. Why not simply `x.reshape(2, 3, 2)`? Write down its head
# > 1.⟧
#: head 1, row 0: (0, 1); head 1, row 1: (2, 3); head 1, row 2: (10, 11)

# %% tags=["slide-code"]
print(show(x).reshape(2, 3, 2))

# %% [markdown]
# ⟦The right shape and the wrong numbers. `reshape` never moves a number in memory; it only cuts the same order
# differently.⟧ Head 1 now holds token 0 and *half of token 1*, cut into three rows that pretend to be three tokens.
# Here they are with a colour for each token:

# %% tags=["slide"]
token_of = np.repeat(np.arange(3), 4).reshape(3, 4)
right = show(ops.split_heads(array(token_of), 2)[0])
wrong = token_of.reshape(2, 3, 2)
figure, axes = plt.subplots(1, 4, figsize=(8, 2.2), layout="constrained")
titles = ["right: head 1", "right: head 2", "reshape: head 1", "reshape: head 2"]
for ax, picture, title in zip(axes, [*right, *wrong], titles, strict=True):
    ax.imshow(picture, cmap="Pastel1", vmin=0, vmax=8)
    ax.set_title(title, fontsize=10)
    ax.set_xticks([])
    ax.set_yticks(range(3), [f"row {i}" for i in range(3)])
    for (row, column), token in np.ndenumerate(picture):
        ax.text(column, row, f"t{int(token)}", ha="center", va="center")

# %% [markdown]
# ⟦The split by `reshape` alone is found in public code. Such a model still trains somewhat, and its gradient is *right*,
# for the wrong function.⟧ So finite differences cannot find it. Let us put it into the library for a moment and ask them.

# %%
x = array(rng.normal(size=(6, 8)))
attention_layer = layers.MultiHeadAttention(8, 2, rng=rng).to(dtype="float64")
by_reshape = course.MISTAKES["split-heads-by-reshape"]
print(by_reshape.sentence)
with by_reshape.applied():
    print("finite differences accept it:", verify.gradients(attention_layer, x, intermediates=False).ok)

# %% [markdown]
# ⟦A **dependency matrix** does find the wrong split: change one input token, and see which outputs change. A causal layer
# must give a lower triangle: no output depends on the future.⟧
#
# > ⟦**Predict first.** With the wrong split, will the picture still be a lower triangle?⟧
#: still a lower triangle: no


# %% tags=["slide"]
def dependency(f, x):
    """Entry (i, j): does output row i move when input row j moves?"""
    y = show(f(x))
    table = np.zeros((y.shape[0], x.shape[0]))
    for j in range(x.shape[0]):
        moved = show(x).copy()
        moved[j] += 1.0
        table[:, j] = np.abs(show(f(array(moved))) - y).max(axis=-1) > 1e-9
    return table


def causal(x):
    return attention_layer(x, causal=True)[0]


def draw_dependencies(tables, titles):
    figure, axes = plt.subplots(1, len(tables), figsize=(2.6 * len(tables), 2.8), layout="constrained")
    for ax, table, title in zip(axes, tables, titles, strict=True):
        ax.imshow(table, cmap="Greys", vmin=0, vmax=1.5)
        ax.set(title=title, xlabel="input moved", ylabel="output")


right = dependency(causal, x)
with by_reshape.applied():
    wrong = dependency(causal, x)
draw_dependencies([right, wrong], ["right", "split by reshape"])
print("outputs that depend on the future:", int(np.triu(right, 1).sum()), "and", int(np.triu(wrong, 1).sum()))

# %% [markdown]
# ⟦The mask was applied to rows that are not tokens, so the future leaks.⟧ Remember this tool: it needs no reference
# implementation and no derivative, only a statement of which output may depend on which input.
#
# **Backward.** Splitting only moves numbers, so it is a permutation matrix $P$ acting on all entries of $x$. For a
# permutation $P^{-1} = P^\top$, so the pullback *is* the inverse. In symbols, for any $x$ and any gradient $g$,
# $\langle \text{split}(x), g\rangle = \langle x, \text{merge}(g)\rangle$.

# %%
g = array(rng.normal(size=(2, 6, 4)))
split, split_backward = ops.split_heads(x, 2)
print("⟨split(x), g⟩ = ⟨x, merge(g)⟩:", np.isclose(float((split * g).sum()), float((x * ops.merge_heads(g)[0]).sum())))
print("backward of split is merge:   ", same(split_backward(g), ops.merge_heads(g)[0]))
print("merge undoes split:           ", same(ops.merge_heads(split)[0], x))

# %% [markdown]
# ## 9.3 Each head has one matrix $W_V W_O$
#
# ⟦Concatenating and then multiplying by $W_O$ seems to mix the heads.⟧ Cut $W_O$ into $H$ blocks of rows, one for each
# head:
#
# ⟦$$[\text{head}_1 \mid \dots \mid \text{head}_H]\, W_O = \sum_h \text{head}_h\, W_O^{(h)}
#   = \sum_h \text{weights}_h \; x\; \underbrace{W_V^{(h)} W_O^{(h)}}_{D \times D}$$⟧
#
# The heads do not mix: each adds its own contribution. And whatever a head carries from one token to another goes
# through **one** matrix, $W_V^{(h)} W_O^{(h)}$, which is stored as two factors. (The biases are zero here.)

# %%
n_heads, d_head = 2, 4
weights = backend.to_device(verify.values_inside("weights", attention_layer, x)[0], device)  # (H, T, T)
w_v = attention_layer.value.weight.value  # (D, H·d)
w_o = attention_layer.output.weight.value  # (H·d, D)
total = 0.0
for h in range(n_heads):
    columns = slice(h * d_head, (h + 1) * d_head)
    total = total + weights[h] @ x @ (w_v[:, columns] @ w_o[columns])
print("the sum over the heads is the layer's output:", same(total, attention_layer(x)[0]))

# %% [markdown]
# > ⟦**Predict first.** $D = 8$ and $H = 2$, so $W_V^{(h)} W_O^{(h)}$ is $8 \times 8$. What is its rank? With $H = 8$?
# > What is the largest rank that the sum over all heads can have?⟧
#: rank with H = 2: 4; rank with H = 8: 1; largest rank of the sum: 8

# %% tags=["slide"]
for h in range(n_heads):
    columns = slice(h * d_head, (h + 1) * d_head)
    print(f"head {h + 1}: rank", np.linalg.matrix_rank(show(w_v[:, columns] @ w_o[columns])))
print("sum:    rank", np.linalg.matrix_rank(show(w_v @ w_o)))

figure, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
for H in (1, 2, 4):
    w = show(w_v[:, : 8 // H] @ w_o[: 8 // H])
    ax.plot(range(1, 9), np.linalg.svd(w, compute_uv=False), "o-", label=f"one of {H} heads, d = {8 // H}")
ax.set(xlabel="singular value number", ylabel="size", title="what one head's value path can carry")
ax.legend()
plt.show()

# %% [markdown]
# ⟦A head of width $d$ has rank at most $d$: it reads $d$ directions of the source token and writes into $d$ directions
# of the target token; everything else is invisible to it.⟧ The same holds for the scores, which are
# $x\, W_Q^{(h)} W_K^{(h)\top} x^\top$, with a $D \times D$ matrix of rank $d_k$ at most.
#
# So value path and low-rank linear map are the same op. `ideas.low_rank_linear(x, down, up)` is $(x W_1) W_2$.

# %%
first = slice(0, d_head)
by_op, low_rank_backward = ideas.low_rank_linear(x, w_v[:, first], w_o[first])
print("weights · low_rank_linear(x) is head 1's contribution:", end=" ")
print(same(weights[0] @ by_op, weights[0] @ x @ w_v[:, first] @ w_o[first]))
for D, d in ((8, 4), (512, 64)):
    print(f"D = {D}, d = {d}: full matrix {D * D:7,d} numbers, two factors {2 * D * d:7,d}")

# %% [markdown]
# ⟦The backward pass of $y = x W_1 W_2$ is two linear maps in reverse. With $h = x W_1$:⟧
#
# ⟦$$dh = dy\, W_2^\top, \quad dW_2 = h^\top dy, \quad dx = dh\, W_1^\top, \quad dW_1 = x^\top dh$$⟧
#
# **The order matters for the work, not for the result.** With 6 tokens, $D = 512$, $d = 64$: multiplying the factors
# first makes a $512 \times 512$ matrix.

# %%
T, D, d = 6, 512, 64
print("(x W1) W2:", f"{T * D * d + T * d * D:>12,d} multiplications")
print("x (W1 W2):", f"{D * d * D + T * D * D:>12,d} multiplications")

# %% [markdown]
# ## 9.4 Cross-attention: one sequence asks, another answers
#
# ⟦Now the queries come from one sequence and the keys and values from another, the **memory**.⟧ In a translator the
# target, here 10 tokens long, asks; the source, here 4 tokens long, answers.
#
# > ⟦**Predict first.** $D = 8$, $H = 2$, 10 queries, a memory of 4. Write down the shapes of q, k, v, scores, heads, y
# > and of the two gradients dx and dmemory.⟧
#: q: (2, 10, 4); k: (2, 4, 4); v: (2, 4, 4); scores: (2, 10, 4); heads: (2, 10, 4)
#: y: (10, 8); dx: (10, 8); dmemory: (4, 8)

# %% tags=["slide"]
target, memory = array(rng.normal(size=(10, 8))), array(rng.normal(size=(4, 8)))
cross = layers.MultiHeadAttention(8, 2, rng=rng).to(dtype="float64")
for name in ("q", "k", "v", "scores", "weights", "heads", "y"):
    print(f"{name:8s}", verify.values_inside(name, cross, target, memory)[0].shape)
y, backward = cross(target, memory)
dx, dmemory = backward(array(rng.normal(size=y.shape)))
print("dx      ", dx.shape)
print("dmemory ", dmemory.shape)

# %% tags=["slide"]
weights = verify.values_inside("weights", cross, target, memory)[0]
figure, axes = plt.subplots(1, 2, figsize=(5, 3.6), layout="constrained")
for head, ax in enumerate(axes):
    image = ax.imshow(weights[head], cmap="viridis", vmin=0.0, vmax=1.0)
    ax.set(title=f"head {head + 1}", xlabel="memory", yticks=range(10), xticks=range(4))
axes[0].set_ylabel("query")
figure.colorbar(image, ax=axes, label="attention weight")
print("rows sum to", weights.sum(axis=-1).round(6)[0], "\ncolumns sum to", weights[0].sum(axis=0).round(2))

# %% [markdown]
# ⟦Ten rows, each a distribution over four columns. The output is as long as the *query*; the memory may have any length.⟧
# If you give the arguments in the wrong order, the output has length 4. With unequal lengths the shape shows the
# mistake; with equal lengths nothing does. (Therefore this course never tests with equal lengths.)
#
# **Which gradients add up?** All 10 queries looked at memory row 2, so all 10 contribute to its gradient. And the row
# was used twice, as key and as value:
#
# ⟦$$d\text{memory} = \sum_h \Big( dk_h\, W_K^{(h)\top} + dv_h\, W_V^{(h)\top} \Big), \qquad dk_h = s\, dscores_h^\top q_h$$⟧
#
# where $dscores^\top$ is $(4 \times 10)$: the sum over the 10 queries is inside the product.

# %% tags=["varies"]
verify.gradients(cross, target, memory)

# %% [markdown]
# Every row of that table was checked against finite differences: inputs, all eight parameters, the intermediates. Look
# for `key.bias`: its gradient is zero up to rounding. Why? A key bias adds the same number $q_i \cdot b$ to all scores
# of query $i$, and softmax ignores a common shift. (A check with only a relative tolerance would fail there.)

# %%
print("d key.bias is zero up to rounding:", bool(np.abs(show(cross.key.bias.grad)).max() < 1e-12))

# %% [markdown]
# ## 9.5 Self-attention again: three gradients add up
#
# ⟦In self-attention the memory is $x$ itself, so $x$ is used three times and $dx$ is the sum of three gradients.⟧ This
# variant forgets two of them:

# %% tags=["varies"]
x = array(rng.normal(size=(5, 8)))
with course.MISTAKES["multi-head-dx-from-query-only"].applied():
    report = verify.gradients(attention_layer, x)
for row in report.rows:
    if not row.ok:
        print(f"{row.name}: by hand {row.hand:.4f}, numerically {row.numerical:.4f}")

# %% [markdown]
# One wrong line makes four rows wrong. `x` lost two of its three gradients. And since the pullbacks of the key and
# value projections are never called, their gradients stay zero and these two matrices never learn. The query
# projection, the output projection and everything above them still train, so the loss still falls. Step through the
# right one; click a number of `dx` to see its three origins.

# %% tags=["varies"]
small = layers.MultiHeadAttention(4, 2, rng=rng).to(dtype="float64")
step(small, array(rng.normal(size=(3, 4)).round(1)))

# %% [markdown]
# ## Exercises
#
# Each cell below has a stub; write the function and run the cell. `course.check` tries random unequal shapes. If a
# result is wrong, it says which entries are wrong and, if it knows the mistake, what the mistake is.

# %%
course.exercise("split_heads")


# %%
def split_heads(x, n_heads):
    raise NotImplementedError


course.check("split_heads", split_heads)

# %%
course.exercise("merge_heads")


# %%
def merge_heads(heads):
    raise NotImplementedError


course.check("merge_heads", merge_heads)

# %%
course.exercise("multi_head_attention_backward")


# %%
def multi_head_attention_backward(x, params, saved, dy):
    raise NotImplementedError


course.check("multi_head_attention_backward", multi_head_attention_backward)

# %%
course.exercise("low_rank_linear_backward")


# %%
def low_rank_linear_backward(x, down, up, dy):
    raise NotImplementedError


course.check("low_rank_linear_backward", low_rank_linear_backward)
