# %% [markdown]
# # 12 Embeddings and positions
#
# The input of a model is a list of token ids. A tokenizer has made them; the usual one, byte-pair encoding (BPE, Sennrich
# et al. 2016), starts from single characters and joins the two neighbours that are most frequent, again and again, so
# that frequent words become one token. This notebook turns the ids into vectors, shows why attention cannot tell "dog
# bites man" from "man bites dog", and explains the table of sines that fixes it, the *positional encoding*.
#
# You need notebooks 2 (VJPs) and 6 (attention). At the end you can
#
# * write the backward pass of a look-up, with repeated tokens and with a tied output;
# * read the table of positions as a picture, and explain the effect of its base;
# * write down the rotation that takes position $p$ to position $p + k$.

# %%
device = "numpy"  # on a GPU: "cupy"

import math
import os

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, layers, ops, verify

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters, and tables of positions
rng = np.random.default_rng(12)
np.set_printoptions(precision=4, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


def ids_of(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## 12.1 A look-up is a product with a one-hot matrix
#
# Five words, a table of five rows:

# %% tags=["slide-given-code"]
words = ["the", "cat", "dog", "saw", "bit"]
sentence = ["the", "cat", "saw", "the", "dog"]
ids = np.array([words.index(word) for word in sentence])
table = rng.normal(size=(5, 3)).round(1)
one_hot = np.eye(5)[ids]
print("ids", ids)
print(one_hot.astype(int))
print("O · table is table[ids]:", np.array_equal(one_hot @ table, table[ids]))

# %% [markdown]
# So the gradient is that of a product: $d\text{table} = O^\top dy$. Its row $v$ sums $dy_n$ over all places $n$ where
# word $v$ occurs. "the" occurs twice.
#
# > ⟦**Predict first.** $dy$ is all ones. What is the gradient of the row "the"? What will each of these three lines give
# > for it: `grad[ids] = dy`, `grad[ids] += dy`, `np.add.at(grad, ids, dy)`?⟧
#: the gradient, each entry: 2; with =: 1; with +=: 1; with np.add.at: 2

# %% tags=["slide"]
dy = np.ones((5, 3))
assigned, added, added_at = np.zeros((5, 3)), np.zeros((5, 3)), np.zeros((5, 3))
assigned[ids] = dy
added[ids] += dy
np.add.at(added_at, ids, dy)
for name, gradient in {"Oᵀ dy": one_hot.T @ dy, "=": assigned, "+=": added, "add.at": added_at}.items():
    print(f"{name:7s} row 'the': {gradient[0]}")

# %% [markdown]
# ⟦`grad[ids] += dy` means "take all these rows, add, write them back": the second write replaces the first.⟧ The most
# common words lose the most. Our op adds every row. The check rejects this mistake *only if* its ids repeat:

# %%
for label, checked in (("ids without repetition", [3, 0, 4, 1, 2]), ("ids with repetition   ", ids)):
    with course.MISTAKES["embedding-repeated-tokens-added-once"].applied():
        report = verify.gradients(ops.embedding, ids_of(checked), array(table))
    print(label, "accepted" if report.ok else "rejected")

# %% [markdown]
# A word that does not occur gets a gradient of zero: a batch of a thousand tokens reaches at most a thousand of fifty
# thousand rows. (Adam still moves the other rows for a while, because of its running mean.)
#
# ## 12.2 Attention does not know the order
#
# > ⟦**Predict first.** Give self-attention the tokens in another order. What happens to the output?⟧
#: the output: is permuted in the same way | stays the same | is another one

# %% tags=["slide"]
x = array(rng.normal(size=(5, 8)))
attention_layer = layers.MultiHeadAttention(8, 2, rng=rng).to(dtype="float64")
permutation = array(np.eye(5)[[3, 1, 4, 0, 2]])
y = attention_layer(x)[0]
print("output\n", show(y)[:, :3], "\noutput for the new order\n", show(attention_layer(permutation @ x)[0])[:, :3], sep="")

# %% [markdown]
# ⟦The output is permuted in the same way (the first three columns are shown): each token gets the same mean over the
# same *set*.⟧ Nothing in softmax$(qk^\top)v$ depends on the place of a key. (A causal mask does break the symmetry: it
# tells how many tokens came before.) So the vectors must contain the position.
#
# ## 12.3 The table of positions
#
# ⟦Vaswani et al. 2017, section 3.5, with $D$ columns in pairs $i = 0, \dots, D/2 - 1$:⟧
#
# ⟦$$PE_{p,\,2i} = \sin(p\, \omega_i), \qquad PE_{p,\,2i+1} = \cos(p\, \omega_i), \qquad \omega_i = \text{base}^{-2i/D}$$⟧
#
# With $D = 4$ and base 100, as in many introductions, $\omega = (1, \tfrac1{10})$: easy with a pocket calculator.
#
# > ⟦**Predict first.** What is row 0 of the table, for any base and any $D$?⟧
#: row 0, for D = 4: (0, 1, 0, 1)

# %% tags=["slide"]
print(show(ops.sinusoidal_positions(4, 4, base=100.0)))
print("by hand, position 3: ", [round(v, 4) for v in (math.sin(3), math.cos(3), math.sin(0.3), math.cos(0.3))])

# %% [markdown]
# Here is a larger table as a picture, with base 100 on the left and base 10000 on the right. A row is a position, a
# column is one sine or cosine.
#
# > ⟦**Predict first.** Which columns of a larger table change fastest from row to row? With base 10000 in place of 100,
# > where will its picture look almost like a barcode, each column one colour?⟧

# %% tags=["slide"]
T, D = 100, 64
tables = {base: show(ops.sinusoidal_positions(T, D, base=base)) for base in (100.0, 10000.0)}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for ax, (base, pe) in zip(axes, tables.items(), strict=True):
    image = ax.imshow(pe, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    ax.set(title=f"base {base:g}", xlabel="column", ylabel="position")
figure.colorbar(image, ax=axes)
plt.show()

# %% [markdown]
# ⟦Each pair of columns is the hand of a clock.⟧ The first hand completes a turn every $2\pi \approx 6$ positions, the
# last one about every $2\pi\,\text{base}$ positions.
#
# > ⟦**Predict first.** The pairs $\sin(p\,\omega_i)$, $\cos(p\,\omega_i)$ with $\omega_i = \text{base}^{-2i/D}$ are the
# > hands of a clock. After how many positions has the slowest completed a turn, with base 100 and $D = 64$? With base
# > 10000?⟧

# %% tags=["slide"]
for base in (100.0, 10000.0):
    wavelengths = 2 * np.pi * base ** (np.arange(0, D, 2) / D)
    hands = ", ".join(f"{w:,.1f}" for w in wavelengths[[0, 1, 8, 16, 24, 31]])
    print(f"base {base:6g}: wavelengths of hands 0, 1, 8, 16, 24, 31: {hands} positions")

# %% [markdown]
# ⟦With a large base many hands hardly move within a short sequence: their columns are almost constant, which gives the
# barcode.⟧ With a small base even the slowest hand completes turns in a long text. Does the whole clock repeat then?
#
# > ⟦**Predict first.** $D = 4$, base 100: two hands, with wavelengths $2\pi$ and $20\pi \approx 62.8$. Which position
# > looks most like position 0? What changes if there are 32 hands?⟧

# %% tags=["slide"]
for width in (4, 64):
    for base in (100.0, 10000.0):
        pe = show(ops.sinusoidal_positions(1000, width, base=base))
        distance = np.linalg.norm(pe[10:] - pe[0], axis=1)
        nearest = 10 + int(distance.argmin())
        step_size = np.linalg.norm(pe[1] - pe[0])
        print(f"D = {width:2d}, base {base:6g}: nearest to position 0, from 10 on, is position {nearest:3d}", end=" ")
        print(f"at distance {distance.min():.2f}; position 1 is at {step_size:.2f}")

# %% [markdown]
# ⟦Position 63 is a good guess: one turn of the slow hand. Position 377 is even closer: six turns of the slow hand and
# sixty of the fast one.⟧ With two hands, some distant positions are closer to each other than neighbours are, so a model
# must confuse them. With 32 hands, all of them would have to complete a turn at once, and that does not happen within a
# thousand positions.
#
# ## 12.4 A step of $k$ is a rotation
#
# ⟦This is the reason for *pairs* of sine and cosine.⟧ By the addition formulas of sine and cosine
#
# ⟦$$\begin{pmatrix} \sin((p+k)\omega) & \cos((p+k)\omega) \end{pmatrix} =
#   \begin{pmatrix} \sin(p\omega) & \cos(p\omega) \end{pmatrix}
#   \begin{pmatrix} \cos(k\omega) & -\sin(k\omega) \\ \sin(k\omega) & \cos(k\omega) \end{pmatrix}$$⟧
#
# The matrix depends on $k$ but not on $p$. With one such block for each pair on its diagonal, $PE_{p+k} = PE_p\, R_k$.
#
# > ⟦**Predict first.** Which matrix is $R_0$? Write $R_3 R_4$ as one rotation. What is $R_k^\top R_k$?⟧
#: R_0: the identity | zero | R_1; R_3 R_4 is R_k with k: 7; R_kᵀ R_k: the identity | zero | R_2k


# %% tags=["slide"]
def rotation(k, width, base=10000.0):
    """R_k: blocks of two on the diagonal, one for each frequency."""
    matrix = np.zeros((width, width))
    for i in range(0, width, 2):
        angle = k * base ** (-i / width)
        matrix[i : i + 2, i : i + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return matrix


pe = show(ops.sinusoidal_positions(60, 16))
for k in (1, 7, 30):
    gap = np.abs(pe[: 60 - k] @ rotation(k, 16) - pe[k:]).max()
    print(f"k = {k:2d}: PE[p] R_k is PE[p + k] for all {60 - k} positions p:", bool(gap < 1e-12))
known = {"the identity": rotation(0, 16)} | {f"R_{k}": rotation(k, 16) for k in (1, 3, 4, 7, 12)}
for name, matrix in {
    "R_0": rotation(0, 16),
    "R_3 R_4": rotation(3, 16) @ rotation(4, 16),
    "R_7ᵀ R_7": rotation(7, 16).T @ rotation(7, 16),
}.items():
    print(f"{name:8} is", next(other for other, wanted in known.items() if np.allclose(matrix, wanted)))

# %% tags=["slide"]
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
image = axes[0].imshow(rotation(7, 16), cmap="RdBu", vmin=-1, vmax=1)
axes[0].set_title("R_7, D = 16")
for ax, i in zip(axes[1:], (0, 2, 4), strict=True):
    ax.plot(np.sin(np.linspace(0, 7, 200)), np.cos(np.linspace(0, 7, 200)), color="lightgrey")
    for p, colour in ((2, "tab:blue"), (9, "tab:red")):
        ax.arrow(0, 0, 0.9 * pe[p, i], 0.9 * pe[p, i + 1], width=0.03, color=colour)
    ax.set(title=f"hand {i // 2}: position 2 (blue), 9 (red)", aspect="equal", xticks=[], yticks=[])
    ax.title.set_fontsize(9)

# %% [markdown]
# ⟦Why is this useful? A head whose query and key matrices contain such a rotation looks "seven to the left" from *every*
# position: one linear map is enough.⟧ And the dot product of two rows depends on their distance alone:
#
# ⟦$$PE_p \cdot PE_{p+k} = \sum_i \cos(k\,\omega_i)$$⟧

# %% tags=["slide"]
figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
for base in (100.0, 10000.0):
    long = show(ops.sinusoidal_positions(300, D, base=base))
    similar = [long[100 + k] @ long[100] for k in range(-100, 200)]
    ax.plot(range(-100, 200), similar, label=f"base {base:g}")
    print(f"base {base:g}: same at p = 0 and p = 100:", np.allclose(long[:200] @ long[0], long[100:] @ long[100]))
ax.set(xlabel="distance k", ylabel="PE[p] · PE[p + k]")
ax.legend()
plt.show()

# %% [markdown]
# The base decides how quickly two positions become dissimilar. Base 100 separates near positions more sharply; base
# 10000 still distinguishes a distance of 100 from one of 200.
#
# ## 12.5 Mistakes in the table
#
# ⟦No gradient flows into a constant table, so no gradient check can find a mistake in it, and models train in spite
# of it.⟧ Only a comparison with the formula does. Take position 3 with $D = 4$: it must be
# $(\sin 3, \cos 3, \sin 0.03, \cos 0.03)$.

# %%
print(f"{'right':32s}", show(ops.sinusoidal_positions(4, 4))[3])
for name in (
    "sinusoidal-base-too-large",
    "sinusoidal-halves-concatenated",
    "sinusoidal-exponent-doubled",
    "sinusoidal-cosine-first",
):
    with course.MISTAKES[name].applied():
        print(f"{name:32s}", show(ops.sinusoidal_positions(4, 4))[3], "\n    ", course.MISTAKES[name].sentence)

# %% [markdown]
# Are they all *harmful*? All sines first and then all cosines is only another order of the columns: a model trained
# with it works as well, but cannot share weights with one that interleaves them. With the doubled exponent half of the
# hands hardly move.
#
# ## 12.6 Adding the two: which one dominates?
#
# ⟦The input of the stack is $\sqrt D \cdot \text{table}[\text{ids}] + PE$.⟧
#
# > ⟦**Predict first.** How long is a row of $PE$, whatever the position? (Use $\sin^2 + \cos^2 = 1$.) How long is a row
# > of a table drawn with standard deviation $1/\sqrt D$?⟧
#: row of PE, for D = 64: 5.66; row of the drawn table, about: 1

# %% tags=["slide"]
tokens = layers.Embedding(1000, D, rng=rng)
lengths = np.linalg.norm(show(tokens.table.value), axis=1)
print(f"row of PE: {np.linalg.norm(tables[10000.0][17]):.3f}")
print(f"row of the table: {lengths.mean():.2f} on average; times √D: {lengths.mean() * math.sqrt(D):.2f}")

# %% [markdown]
# ⟦A row of $PE$ has length $\sqrt{D/2}$. Without the factor $\sqrt D$ it would be 5.7 times as long as a word's vector.⟧
# With it, the word's vector is 1.4 times as long. The factor appears in backward too, $d\text{vectors} = \sqrt D\, dx$,
# and is often forgotten there.
#
# ## 12.7 One table, two uses
#
# ⟦Section 3.4 of the paper also uses the table of embeddings to compute the logits, $\text{logits} = h\, \text{table}^\top$.⟧ A table
# used twice gets two gradients.
#
# > ⟦**Predict first.** The batch holds tokens 1 and 4 of a vocabulary of 6. Which rows of the table get a gradient from
# > the look-up, and which from the output?⟧
#: from the look-up: 1 and 4 | all | none; from the output: all | 1 and 4 | none

# %% tags=["slide"]
tied = layers.Embedding(6, 3, rng=rng).to(dtype="float64")
vectors, look_up_backward = tied(ids_of([1, 4]))
logits, unembed_backward = tied.unembed(vectors)
loss, loss_backward = ops.cross_entropy(logits, ids_of([4, 1]))
dvectors = unembed_backward(loss_backward())
by_output = show(tied.table.grad).copy()
look_up_backward(dvectors)
by_look_up = show(tied.table.grad) - by_output
figure, axes = plt.subplots(1, 2, figsize=(5, 2.6), layout="constrained", sharey=True)
for ax, gradient, title in zip(axes, (by_look_up, by_output), ("from the look-up", "from the output"), strict=True):
    ax.imshow(gradient, cmap="RdBu", vmin=-0.5, vmax=0.5, aspect="auto")
    ax.set(title=title, xticks=[], yticks=range(6))
axes[0].set_ylabel("token")
print(
    "rows with gradient:",
    np.flatnonzero(np.abs(by_look_up).sum(axis=1)),
    "and",
    np.flatnonzero(np.abs(by_output).sum(axis=1)),
)

# %% [markdown]
# ⟦The look-up reaches a few rows, the output matrix **all** rows.⟧ Both pullbacks add to the same `.grad` with `+=`. With
# `=` in the second one, the first gradient would be lost, and the loss would still fall.
#
# ## 12.8 Learned positions
#
# GPT-2 and BERT learn a row for each position. This is simple, but the table has a last row. Every sequence of the
# batch uses the same rows, so their gradients are summed over the batch.

# %%
learned = layers.LearnedPositions(8, 3, rng=rng).to(dtype="float64")
batch = array(rng.normal(size=(4, 5, 3)))
upstream = array(rng.normal(size=(4, 5, 3)))
learned(batch)[1](upstream)
print("rows 0 to 4 got the sum over the batch:", np.allclose(show(learned.table.grad)[:5], show(upstream).sum(axis=0)))
print("rows 5 to 7, never used:", show(learned.table.grad)[5:].ravel())
try:
    learned(array(rng.normal(size=(1, 9, 3))))
except ValueError as error:
    print("nine tokens:", error)

# %% [markdown]
# ## Exercises

# %%
course.exercise("embedding_backward")


# %%
def embedding_backward(ids, dy, vocabulary):
    raise NotImplementedError


course.check("embedding_backward", embedding_backward)

# %%
course.exercise("sinusoidal_positions")


# %%
def sinusoidal_positions(length, width, base):
    raise NotImplementedError


course.check("sinusoidal_positions", sinusoidal_positions)

# %%
course.exercise("tied_embedding_backward")


# %%
def tied_embedding_backward(ids, table, hidden, dembedded, dlogits):
    raise NotImplementedError


course.check("tied_embedding_backward", tied_embedding_backward)

# %% [markdown]
# **On paper.** Let $a = x_p + PE_p$ and $b = x_r + PE_r$ enter one head with $W_Q = W_K = I$. Multiply out $a \cdot b$:
# which of the four terms depends on the distance $p - r$ alone? (Rotary embeddings rotate $q$ and $k$ by $R_p$ and
# $R_r$ instead of adding positions. Then the whole score depends on positions only through $p - r$.)
