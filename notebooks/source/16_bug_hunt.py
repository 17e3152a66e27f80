# %% [markdown]
# # 16 Bug hunt
#
# Every mistake in this notebook was seen in public NumPy and CuPy Transformers or in texts that teach them. None of
# them crashes. Most of them train. You will find them with four tools and one question for each: *which property of
# right code does this break?*
#
# You need notebooks 1 to 14; work in pairs. At the end you can
#
# * choose the tool that can find a given kind of mistake, and say why the others cannot;
# * read a test critically: which mistakes would pass it?

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, layers, ops, training, verify
from minitransformer.school.course import worked_example

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
rng = np.random.default_rng(16)
np.set_printoptions(precision=4, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


# %% [markdown]
# ## 16.1 The four tools
#
# ⟦| tool | what it tests | what it cannot find |
# |---|---|---|
# | **shapes**, all sizes unequal | the factors have the right order | any mistake that keeps the shape |
# | **gradients**, finite differences | backward is the derivative of *this* forward | a wrong forward; anything, if upstream gradients or parameters are too special |
# | **values** from elsewhere (by hand, from a paper) | forward is the right formula | backward |
# | **dependencies**: change one input, see which outputs change | which output may depend on which input | wrong numbers |⟧

# %%
q, k, v = array(rng.normal(size=(4, 3))), array(rng.normal(size=(6, 3))), array(rng.normal(size=(6, 5)))


def gradients_say(f, *inputs, **options):
    """What finite differences say, in a word or two."""
    try:
        report = verify.gradients(f, *inputs, intermediates=False, **options)
    except Exception as error:
        return f"stops with {type(error).__name__}"
    return "accepted" if report.ok else "rejected: " + ", ".join(r.name for r in report.of_kind("input") if not r.ok)


def dependencies(f, x):
    """Entry (i, j): does row i of f(x) move when row j of x does?"""
    y, table = show(f(x)), np.zeros((len(show(f(x))), len(show(x))), dtype=int)
    for j in range(table.shape[1]):
        moved = show(x).copy()
        moved[j] += 1.0
        table[:, j] = np.abs(show(f(array(moved))) - y).max(axis=-1) > 1e-9
    return table


print("attention:", gradients_say(ops.attention, q, k, v))

# %% [markdown]
# ## 16.2 Case 1: a test that everything passes
#
# ⟦Here is a backward pass of softmax, as found in several repositories, and the test that came with it.⟧
#
# > ⟦**Predict first.** Read both. What is wrong with the function? Why does its test pass?⟧


# %% tags=["slide", "slide-asked"]
def suspect_softmax(x):
    y, _ = ops.softmax(x)

    def backward(dy):
        dx = y * (1.0 - y) * dy
        return dx

    return y, backward


def their_test():
    x = array(0.02 * rng.normal(size=(3, 4)))
    y, backward = suspect_softmax(x)
    dy = array(0.001 * np.ones((3, 4)))
    h, numerical = 1e-5, np.zeros((3, 4))
    for index in np.ndindex(3, 4):
        bump = np.zeros((3, 4))
        bump[index] = h
        difference = suspect_softmax(x + array(bump))[0] - suspect_softmax(x - array(bump))[0]
        numerical[index] = float((difference * dy).sum()) / (2 * h)
    return np.allclose(show(backward(dy)), numerical, atol=1e-3)


print("their test passes:", their_test())
print("with a random upstream:", gradients_say(suspect_softmax, array(rng.normal(size=(3, 4)))))

# %% [markdown]
# ⟦The function keeps only the diagonal of the Jacobian.⟧ The test has two holes, each of them enough: an upstream
# gradient of equal numbers, for which the true gradient is zero; and numbers so small that everything is below `atol`.
# A test is worth what it rejects. So try it on a backward pass that returns zeros before you trust it:

# %%
x = array(0.02 * rng.normal(size=(3, 4)))
print(
    "zeros would pass their test:", np.allclose(0.0, show(ops.softmax(x)[1](array(0.001 * np.ones((3, 4))))), atol=1e-3)
)

# %% [markdown]
# **One wrong argument in a test.** What does this test compare?

# %%
expected, computed = np.array([1.0, 2.0, 3.0]), np.array([1.9, 0.1, 5.0])
print(np.allclose(computed, 2.0, expected))

# %% [markdown]
# The third argument of `allclose` is `rtol`. The expected values were passed as the tolerance, so everything within 100
# to 300 percent of 2 is "close".
#
# ## 16.3 Case 2: small weights hide everything
#
# ⟦In this attention $dk$ should be $dscores^\top q$. Instead, dscores is *reshaped* to $(T_k, T_q)$, which has the right
# shape and scrambled numbers.⟧ ⟦This is from public code, where a gradient check accepted it: weights of size 0.02,
# `atol=1e-4`, upstream gradient divided by the number of outputs.⟧
#
# > ⟦**Predict first.** For which size of the inputs does a check with `atol=1e-4` reject the reshaped dscores: 0.02, 0.1
# > or 1?⟧

# %% tags=["slide"]
scrambled = course.MISTAKES["attention-dk-reshaped"]
for size in (0.02, 0.1, 1.0):
    with scrambled.applied():
        small = [size * x for x in (q, k, v)]
        mean = array(rng.normal(size=(4, 5)) / 20)
        theirs = verify.gradients(ops.attention, *small, upstream=mean, atol=1e-4).ok
        ours = verify.gradients(ops.attention, *small).ok
    words = ["accepts" if verdict else "rejects" for verdict in (theirs, ours)]
    print(f"inputs of size {size:4}: their check {words[0]}, ours {words[1]}")

# %% [markdown]
# ⟦The check fails exactly where models start: with small weights.⟧ A tolerance must fit the size of what it judges.
#
# ## 16.4 Case 3: wrong together
#
# ⟦Five suspects, each with its backward pass wrong in the same way as its forward pass:
#
# - scores divided by the root of the length
# - weights scaled after the softmax
# - heads split by `reshape` alone
# - LayerNorm with ε outside the root
# - GELU with a wrong constant⟧
#
# Finite differences accept all of them.
#
# > ⟦**Predict first.** For each: which tool finds it, shapes, values or dependencies?⟧

# %% tags=["slide"]
together = (
    "attention-scaled-by-length",
    "attention-scaled-after-softmax",
    "split-heads-by-reshape",
    "layer-norm-eps-outside-root-throughout",
    "gelu-tanh-wrong-constant",
)
heads_layer = layers.MultiHeadAttention(6, 2, rng=rng).to(dtype="float64")
x = array(rng.normal(size=(4, 6)))
gamma, beta = array(1.0 + 0.3 * rng.normal(size=6)), array(rng.normal(size=6))
checked = (
    lambda: gradients_say(ops.attention, q, k, v),
    lambda: gradients_say(ops.attention, q, k, v),
    lambda: gradients_say(heads_layer, x),
    lambda: gradients_say(ops.layer_norm, x, gamma, beta),
    lambda: gradients_say(ops.gelu, x, approximate="tanh"),
)
for name, check in zip(together, checked, strict=True):
    with course.MISTAKES[name].applied():
        print(f"{name:40s} {check()}")

# %% [markdown]
# ⟦Finite differences accept all five.⟧
#
# ⟦**Values.** A small attention is enough for a calculation by hand: one query, two keys, $d_k = 4$.⟧ With
# $q = (2,0,0,0)$, $k_0 = (2,0,0,0)$, $k_1 = 0$ the scores are $4/\sqrt 4 = 2$ and 0; with values 1 and 0 the output is
# $\sigma(2) = 0.8808$.

# %%
one_query = array([[2.0, 0, 0, 0]])
two_keys, two_values = array([[2.0, 0, 0, 0], [0, 0, 0, 0]]), array([[1.0], [0.0]])
print(f"{'by hand':34s}{1 / (1 + np.exp(-2.0)):.4f}")
print(f"{'right':34s}{float(ops.attention(one_query, two_keys, two_values)[0][0, 0]):.4f}")
for name in together[:2]:
    with course.MISTAKES[name].applied():
        print(f"{name:34s}{float(ops.attention(one_query, two_keys, two_values)[0][0, 0]):.4f}")

# %% [markdown]
# Note the choice of numbers: $T_k = 2 \ne d_k = 4$. In the example that many introductions use, $T = d_k = d_v = 3$, so
# $\sqrt T$ cannot be told from $\sqrt{d_k}$.
#
# **Dependencies** find the reshape of the heads, as in notebook 9, and more. Here is a decoder layer as three suspects.
# One of them is innocent.
#
# > ⟦**Predict first.** What must the dependency matrix of a decoder's output on its own input look like?⟧ Which of the
# > three will be right? Look at the pictures, and say what each of the others does, before you run the cell after them.

# %% tags=["slide"]
decoder_layer = layers.DecoderLayer(6, 2, 8, rng=rng).to(dtype="float64")
memory = array(rng.normal(size=(4, 6)))


def decoder(target):
    return decoder_layer(target, memory)[0]


labels = {"A": "bcf07d", "B": "4c9553", "C": "a1df6d"}
suspects = {letter: course.suspect(label) for letter, label in labels.items()}
figure, axes = plt.subplots(1, 3, figsize=(7, 2.6), layout="constrained")
for ax, (letter, suspected) in zip(axes, suspects.items(), strict=True):
    with suspected.applied():
        table = dependencies(decoder, x)
    ax.imshow(table, cmap="Greys", vmin=0, vmax=1.5)
    ax.set(title=f"suspect {letter}", xlabel="input moved", ylabel="output", xticks=range(4), yticks=range(4))

# %% [markdown]
# ⟦A full matrix means that every output sees the whole target.⟧ A diagonal above the main one means that every output
# sees the token that it should predict.

# %%
for letter, suspected in suspects.items():
    print(f"{letter}: {suspected.reveal()}")

# %% [markdown]
# In A, queries and memory are exchanged in cross-attention: with sequences of equal length no shape is wrong.
#
# ## 16.5 Case 4: masks
#
# > ⟦**Predict first.** Two keys, both masked. What should a query that may see nothing return? What does it return if
# > hidden scores become $-10^9$? If they become $-\infty$?⟧
#: −1e9, the weights: (0.5, 0.5); −∞, the weights: (nan, nan)

# %% tags=["slide"]
scores, nobody = np.array([[3.0, 1.0]]), np.array([[False, False]])
with np.errstate(invalid="ignore"):
    for label, hidden in (("-1e9", -1e9), ("-inf", -np.inf)):
        masked = np.where(nobody, scores, hidden)
        weights = np.exp(masked - masked.max()) / np.exp(masked - masked.max()).sum()
        print(f"{label}: weights {weights[0]}")
print("ours:", show(ops.attention(one_query, two_keys, two_values, mask=backend.to_device(nobody, device))[0])[0])

# %% [markdown]
# ⟦With $-10^9$ the query attends to both hidden keys equally; with $-\infty$ the result is NaN, which spreads over the
# whole batch.⟧ Every test of masks needs one fully masked row.
#
# ⟦**A formula from tutorials.** Some put the mask inside the scaling,
# $\mathrm{softmax}\big((QK^\top + M)/\sqrt{d_k}\big)$.⟧
#
# > ⟦**Predict first.** For $M \in \{0, -\infty\}$: does it matter? For $M = -10$, $d_k = 64$?⟧
#: 0 and −∞, it matters: no; −10, it matters: yes

# %% tags=["slide"]
for m in (-np.inf, -10.0):
    with np.errstate(invalid="ignore"):
        mask = np.array([0.0, m])  # both scores are 0
        inside, outside = np.exp((0.0 + mask) / 8.0), np.exp(0.0 / 8.0 + mask)
    print(f"M = {m}: inside the scaling {inside / inside.sum()}, outside {outside / outside.sum()}")

# %% [markdown]
# ⟦Only for $-\infty$ is it harmless. With a finite number the mask leaks, and the wider the head, the more it leaks.⟧
#
# ## 16.6 Case 5: the worked example
#
# ⟦Introductions that use the $3 \times 4$ example print rounded weights $[0,\ 0.5,\ 0.5]$ for the first token and the
# output $[2,\ 7,\ 1.5]$.⟧
#
# > ⟦**Predict first.** The scores of the first token are 2, 4, 4. Compute the first weight to four places. To which
# > decimal would you round?⟧
#: the first weight: 0.0634

# %% tags=["slide"]
scores = np.array([2.0, 4.0, 4.0])
weights = np.exp(scores) / np.exp(scores).sum()
values = worked_example.UNSCALED.x @ worked_example.UNSCALED.w_v
print("weights ", weights, "to one decimal", weights.round(1), "which sum to", weights.round(1).sum())
print("output  ", weights @ values, "\nfrom weights rounded to one decimal", weights.round(1) @ values)
print("as printed, from [0, 0.5, 0.5]:     ", np.array([0.0, 0.5, 0.5]) @ values)

# %% [markdown]
# ⟦0.0634 rounds to 0.1, not to 0; and rounding weights *before* they are used moves the output in its first digit.⟧ Round
# what you print, never what you compute with. (They also leave out the scale $1/\sqrt 3$.)
#
# ## 16.7 Case 6: Adam hides it, so look at the gradient
#
# ⟦One cross-entropy has a gradient that is *not* divided by $N$, another a gradient that is divided twice.⟧ Both train.
#
# > ⟦**Predict first.** Train a linear classifier with each, by plain gradient descent and by Adam. Which of the four
# > curves differ?⟧
#: of gradient descent: differ | are equal; of Adam: are equal | differ


# %% tags=["slide"]
def curve(optimiser, mistake=None, steps=60):
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
    inputs[np.arange(50), labels] += 2.0
    linear = layers.Linear(4, 3, rng=rng).to(dtype="float64")
    adam = training.AdamW(linear.parameters(), 0.05, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        linear.zero_grad()
        logits, backward = linear(array(inputs))
        loss, loss_backward = ops.cross_entropy(logits, backend.to_device(labels, device))
        backward(loss_backward() * {None: 1.0, "not divided": 50.0, "divided twice": 1 / 50}[mistake])
        if optimiser == "Adam":
            adam.step()
        else:
            for _, parameter in linear.parameters():
                parameter.value -= 0.5 * parameter.grad
        losses.append(float(loss))
    return losses


figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
for ax, optimiser in zip(axes, ("gradient descent", "Adam"), strict=True):
    for mistake in (None, "not divided", "divided twice"):
        losses = curve(optimiser, mistake)
        ax.plot(losses, label=mistake or "right", linestyle="-" if mistake is None else "--")
        print(f"{optimiser:17s} {mistake or 'right':14s} last loss {losses[-1]:.3f}")
    ax.set(title=optimiser, xlabel="step", ylim=(0, 2.5))
axes[0].legend()
plt.show()

# %% [markdown]
# ⟦Adam divides by the size of the gradient, so a constant factor cancels.⟧ A training curve is not a test.
#
# ## 16.8 The line-up
#
# ⟦Twelve suspects, known by their labels. `suspect(i, f, ...)` calls `f` with mistake number $i$ in the library.⟧ Choose
# your tools, write down a verdict for each suspect, *then* ask `reveal(i)`. Some break the gradient of an op, some the
# function itself.

# %% tags=["slide"]
line_up = "726b46 dc2b88 08c813 6f636a 677b71 059253 ef25aa 7343b0 0c7d01 adb75e 15bbae 20c5c9".split()


def suspect(i, f, *inputs, **options):
    """f(*inputs, **options) with mistake number i in the library."""
    with course.suspect(line_up[i]).applied():
        return f(*inputs, **options)


def reveal(i):
    print(f"{i}: {course.suspect(line_up[i]).reveal()}")


x, gamma, beta = x[:, :4], gamma[:4], beta[:4]  # smaller, so that twelve suspects are soon heard
heads_layer = layers.MultiHeadAttention(4, 2, d_k=3, d_v=3, rng=rng).to(dtype="float64")
block = layers.Residual(layers.FeedForward(4, 5, rng=rng), layers.LayerNorm(4), "post").to(dtype="float64")
logits, targets = array(rng.normal(size=(5, 4))), backend.to_device(np.array([0, 3, -100, 1, 1]), device)
line = {
    "softmax": lambda: gradients_say(ops.softmax, x),
    "attention": lambda: gradients_say(ops.attention, q, k, v, dropout=0.3, rng=np.random.default_rng(0)),
    "heads": lambda: gradients_say(heads_layer, x),
    "layer_norm": lambda: gradients_say(ops.layer_norm, x, gamma, beta),
    "gelu": lambda: gradients_say(ops.gelu, x),
    "cross_entropy": lambda: gradients_say(ops.cross_entropy, logits, targets, label_smoothing=0.1),
    "dropout": lambda: gradients_say(ops.dropout, x, 0.4, np.random.default_rng(0)),
    "post-norm block": lambda: gradients_say(block, x),
}
table = np.zeros((12, len(line)), dtype=int)
for i in range(12):
    for column, check in enumerate(line.values()):
        table[i, column] = suspect(i, check) != "accepted"
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.imshow(table, cmap="Reds", vmin=0, vmax=1.4, aspect="auto")
ax.set(title="gradients rejected", ylabel="suspect", yticks=range(12))
ax.set_xticks(range(len(line)), line, rotation=40, ha="right")
plt.show()

# %% [markdown]
# In a row with red, the pattern of columns already says where to look. (For example: what do LayerNorm and the
# post-norm block have in common, and no other column?) A row without red is wrong in forward and backward together, or
# these calls do not reach the mistake: there you need values or dependencies. For a closer look:

# %% tags=["varies"]
suspect(0, verify.gradients, heads_layer, x)

# %%
# Your verdicts, one sentence each; then remove the # and run.
# reveal(0)

# %% [markdown]
# ## Exercises: repair
#
# Each of these functions has a mistake that was seen in public code. Run the cell: `course.check` says what is wrong.
# Fix it.

# %%
course.exercise("cross_entropy_backward")


# %%
def cross_entropy_backward(logits, targets):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    p[np.arange(len(targets)), targets] -= 1.0
    return p / logits.size


course.check("cross_entropy_backward", cross_entropy_backward)

# %%
course.exercise("embedding_backward")


# %%
def embedding_backward(ids, dy, vocabulary):
    dtable = np.zeros((vocabulary, dy.shape[-1]))
    dtable[ids] += dy
    return dtable


course.check("embedding_backward", embedding_backward)

# %%
course.exercise("dropout_backward")


# %%
def dropout_backward(dy, keep, rate):
    return np.where(keep, dy, 0.0) * (1.0 - rate)


course.check("dropout_backward", dropout_backward)

# %% [markdown]
# **The last exercise.** Take any small NumPy Transformer that somebody else wrote. Before you read its code, write
# down five properties that right code must have (one for each tool, and one of its tests). Test them.
