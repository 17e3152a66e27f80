# %% [markdown]
# # 8 Masks and dropout
#
# Not every query may look at every key: the future and padding are hidden, and in some models distant keys are too.
# During training, some weights are also dropped at random. Masks act before the softmax, dropout after it.
#
# After this hour you can
#
# - build the three masks and combine them;
# - explain why a mask belongs before the softmax, and what to do with a fully masked row;
# - test that nothing leaks, which finite differences cannot show;
# - go backward through dropout.
#
# You need: notebooks 6 and 7.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, masks, ops, verify
from minitransformer.course import MISTAKES

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80


def verdict(report):
    return "right" if report.ok else "wrong"


def show_masks(**pictures):
    """Boolean matrices side by side: filled where the query (row) may see the key (column)."""
    size = (1.7 * len(pictures), 2.0)
    _, all_axes = plt.subplots(1, len(pictures), figsize=size, squeeze=False)
    for axes, (title, mask) in zip(all_axes[0], pictures.items(), strict=True):
        axes.imshow(backend.to_numpy(mask), cmap="Greens", vmin=0, vmax=1.4)
        axes.set(title=title.replace("_", " "), xticks=[], yticks=[], xlabel="key")
    all_axes[0][0].set_ylabel("query")
    plt.show()


# %% [markdown]
# ## Three masks
#
# ⟦A mask is a matrix of booleans with a row for each query and a column for each key.⟧ **True means "may attend".** (Some
# libraries mean the opposite; check before you combine masks.)
#
# ⟦- **causal** (sequence): a token sees itself and what came before, $j \le i$. A language model must not read the
#   answer.
# - **padding**: keys beyond the end of their sequence are hidden from every query.
# - **local** (restricted): only the neighbours, $|i - j| \le r$.
#
# **Predict first.** Draw all three for 6 tokens, with length 4 and $r = 1$. How many True entries does each have?⟧
#: causal: 21; padding: 24; local: 16

# %% tags=["slide"]
T = 6
causal = masks.causal_mask(T, device=device)
padding = masks.padding_mask(xp.array([4]), t_k=T)[0] & xp.ones((T, T), dtype=bool)
local = masks.local_mask(T, 1, device=device)
show_masks(causal=causal, padding=padding, local=local, all_three=causal & padding & local)
print("True entries:", [int(mask.sum()) for mask in (causal, padding, local, causal & padding & local)])

# %% [markdown]
# ⟦$6 \cdot 7 / 2 = 21$, $6 \cdot 4 = 24$, $6 + 2 \cdot 5 = 16$. Combine them with `&`: a pair is allowed if all masks
# allow it.⟧
#
# The last row of the last picture is empty. Query 5 may see only keys 4 and 5, and both are padding. We return to it
# below.
#
# In a batch each sequence has its own length, so the padding mask has shape $(B, 1, T_k)$, and broadcasts against
# $(T_q, T_k)$:

# %% tags=["slide"]
lengths = xp.array([4, 6])
mask = masks.causal_mask(T, device=device) & masks.padding_mask(lengths)
print(masks.padding_mask(lengths).shape, "&", causal.shape, "=", mask.shape)
show_masks(sequence_0=mask[0], sequence_1=mask[1])

# %% [markdown]
# ## Before the softmax
#
# ⟦Hidden scores become $-\infty$ before the softmax, and $e^{-\infty} = 0$:⟧
#
# ⟦$$\text{weights}_{ij} = \frac{m_{ij}\, e^{\text{scores}_{ij}}}{\sum_l m_{il}\, e^{\text{scores}_{il}}}, \qquad m_{ij} = 1 \text{ where allowed, 0 elsewhere}$$⟧
#
# ⟦Why not simply set weights to zero *after* the softmax? **Predict first:** the scores are $(\ln 1, \ln 2, \ln 4)$ and
# the last key is hidden. What are the weights in both cases?⟧
#: hidden before the softmax: (1/3, 2/3, 0); hidden after it: (1/7, 2/7, 0)

# %% tags=["slide"]
scores = xp.log(xp.array([1.0, 2.0, 4.0]))
allowed = xp.array([True, True, False])
before = ops.softmax(xp.where(allowed, scores, -xp.inf))[0]
after = xp.where(allowed, ops.softmax(scores)[0], 0.0)
print("hidden before:", before, " sum", round(float(before.sum()), 4))
print("hidden after: ", after, " sum", round(float(after.sum()), 4))

# %% [markdown]
# ⟦$\frac13, \frac23$ against $\frac17, \frac27$. After the softmax the weights no longer sum to one.⟧ Worse: the hidden
# key is still in the denominator. Change its score, and the other weights change. **The hidden key still has
# influence:**

# %%
scores[2] = np.log(94.0)
print("hidden before:", ops.softmax(xp.where(allowed, scores, -xp.inf))[0])
print("hidden after: ", xp.where(allowed, ops.softmax(scores)[0], 0.0))

# %% [markdown]
# A language model trained like this still learns from the future.
#
# ## Testing for leaks
#
# ⟦**Predict first.** In a variant of the causal mask each token also sees the next one. Will finite differences find
# it?⟧
#: finite differences find it: no

# %% tags=["slide"]
rng = np.random.default_rng(0)
q, k = (backend.to_device(rng.normal(size=(T, 2)), device) for _ in range(2))
v = backend.to_device(rng.normal(size=(T, 3)), device)
leak = MISTAKES["causal-mask-sees-one-ahead"]
print(leak.sentence)
with leak.applied():
    report = verify.gradients(ops.attention, q, k, v, causal=True)
print("finite differences:", verdict(report))

# %% [markdown]
# ⟦Forward and backward agree: both leak. Ask another question instead: *which outputs depend on which inputs?* Change
# one token and see which outputs change.⟧


# %% tags=["slide"]
def dependencies(f, *arrays):
    """A square for (i, j): output row i moves when row j of the last array is moved."""
    output, _ = f(*arrays)
    *others, last = arrays
    depends = np.zeros((len(output), len(last)), dtype=bool)
    for j in range(len(last)):
        moved = last.copy()
        moved[j] += 1.0
        depends[:, j] = backend.to_numpy((f(*others, moved)[0] != output).any(axis=-1))
    return depends


def causal_attention(q, k, v):
    return ops.attention(q, k, v, causal=True)


right = dependencies(causal_attention, q, k, v)
with leak.applied():
    leaking = dependencies(causal_attention, q, k, v)
show_masks(right=right, leaking=leaking)
print("right one is exactly the causal mask:", bool((right == backend.to_numpy(causal)).all()))

# %% [markdown]
# ⟦Two more that finite differences accept and this picture exposes:⟧

# %% tags=["slide"]
padded = xp.array([[True, True, True, True, False, False]])
pictures = {}
for name in ("attention-mask-ignored", "attention-mask-inverted"):
    with MISTAKES[name].applied():
        pictures[name.removeprefix("attention-")] = dependencies(
            lambda *a: ops.attention(*a, mask=padded), q, k, v
        )
pictures["right"] = dependencies(lambda *a: ops.attention(*a, mask=padded), q, k, v)
show_masks(**pictures)

# %% [markdown]
# ## Backward through a mask
#
# ⟦A hidden pair has the weight 0, and $\text{dscores}_{ij} = \text{weights}_{ij} (\dots)$.⟧ So its gradient is 0, and
# **nothing needs to be written**: the softmax does it.
#
# ⟦**Predict first.** The last two of six keys are padding. Which rows of dq, dk, dv are zero?⟧
#: dq: none | 4 and 5 | all; dk: 4 and 5 | none | all; dv: 4 and 5 | none | all

# %% tags=["slide"]
doutput = backend.to_device(rng.normal(size=(T, 3)), device)
dq, dk, dv = ops.attention(q, k, v, mask=padded)[1](doutput)
for name, gradient in {"dq": dq, "dk": dk, "dv": dv}.items():
    print(f"{name}: rows that are zero: {[i for i in range(T) if not gradient[i].any()]}")

# %% [markdown]
# ⟦Every query still looks at something; but a hidden key is not compared, and its value is not read.⟧
#
# ## A row with nothing to see
#
# ⟦A query that may attend to nothing has the score $-\infty$ for every key.⟧ Public code has three answers.
#
# ⟦**Predict first.** What does each give: (a) $-\infty$ and a plain softmax; (b) $-10^9$ instead of $-\infty$; (c) in
# float16, $-10^9$?⟧
#: (a): nan | equal weights | zeros; (b): equal weights | nan | zeros; (c): nan | equal weights | zeros


# %% tags=["slide"]
def plain_softmax(x):
    e = xp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


row = xp.array([1.0, 2.0, 3.0])
hidden = xp.zeros(3, dtype=bool)
with np.errstate(all="ignore"):
    print("(a) -inf:           ", plain_softmax(xp.where(hidden, row, -xp.inf)))
    print("(b) -1e9:           ", plain_softmax(xp.where(hidden, row, -1e9)))
    print("(c) -1e9 in float16:", plain_softmax(xp.where(hidden, row, -1e9).astype(np.float16)))
print("this library:       ", ops.softmax(xp.where(hidden, row, -xp.inf))[0])

# %% [markdown]
# - (a) $-\infty - (-\infty)$ is `nan`, and one `nan` poisons the loss and then every weight of the model.
# - (b) All weights are equal: the query that may see *nothing* sees *everything*, padding and future included.
# - (c) $-10^9$ is outside the range of float16 and becomes $-\infty$, so the result is that of (a).
#
# ⟦This library's answer: the query sees nothing. Its weights are zeros, its output is zero, its gradients are zero.⟧

# %%
nothing_for_5 = causal & padding & local
output, backward = ops.attention(q, k, v, mask=nothing_for_5)
dq, dk, dv = backward(doutput)
print("output of query 5:", output[5], "  dq of query 5:", dq[5])
report = verify.gradients(ops.attention, q, k, v, mask=nothing_for_5)
print("finite differences:", verdict(report))

# %% [markdown]
# What about adding a finite number, $-10^4$, to the hidden scores? In a row that may see something, the result is
# practically right. So this variant passes every test that has no fully masked row:

# %%
added = MISTAKES["attention-mask-added"]
print(added.sentence)
right_output = ops.attention(q, k, v, mask=nothing_for_5)[0]
with added.applied():
    difference = abs(ops.attention(q, k, v, mask=nothing_for_5)[0] - right_output).max(axis=1)
print("largest difference in each row:", difference)

# %% [markdown]
# **Every test of a mask needs one fully masked row.**
#
# ## When there are fewer queries than keys
#
# ⟦A decoder that continues a text computes queries for its new tokens only, but compares them with all earlier keys,
# which it kept (notebook 14).⟧ Then $T_q < T_k$, and the queries are the *last* ones.
#
# ⟦**Predict first:** the causal mask of 2 queries and 5 keys.⟧
#: row 0: (1, 1, 1, 1, 0); row 1: (1, 1, 1, 1, 1)

# %% tags=["slide"]
show_masks(
    two_of_five=masks.causal_mask(2, 5, device=device),
    five_of_five=masks.causal_mask(5, device=device),
)

# %% [markdown]
# ⟦They are the last two rows of the full mask.⟧
#
# ## Dropout
#
# ⟦During training, set each number to zero with probability $r$, so that the model cannot rely on any single one.⟧ Scale
# up the rest:
#
# ⟦$$y_i = \frac{m_i}{1 - r}\, x_i, \qquad m_i = 0 \text{ with probability } r, \text{ otherwise } 1$$⟧
#
# ⟦**Predict first.** Why the division by $1 - r$? Without it, what would you have to do when you use the trained model?⟧

# %% tags=["varies", "slide"]
ones = xp.ones((4, 6))
dropped, pullback = ops.dropout(ones, 0.25, np.random.default_rng(0))
print(dropped)
many = [
    float(ops.dropout(ones, 0.25, np.random.default_rng(seed))[0].mean()) for seed in range(2000)
]
print("mean over 2000 draws:", round(float(np.mean(many)), 2))

# %% [markdown]
# ⟦The *expected* value stays the same, so nothing needs to change when dropout is turned off.⟧ In this library `rng=None`
# turns it off, not a hidden switch in the layer.
#
# **Backward.** For a given draw, $y$ is $x$ times fixed factors. So the gradient is multiplied by the same factors:
# $dx_i = \frac{m_i}{1 - r}\, dy_i$. *The same draw*, not a new one:

# %%
print("backward uses the same draw:", bool((pullback(ones) == dropped).all()))
for name in ("dropout-mask-redrawn", "dropout-mask-forgotten", "dropout-not-rescaled"):
    with MISTAKES[name].applied():
        report = verify.gradients(ops.dropout, q, 0.25, np.random.default_rng(0))
    print(f"{verdict(report)}: {MISTAKES[name].sentence}")

# %% [markdown]
# To check this with finite differences, every evaluation must draw the same numbers; otherwise you measure the
# difference of two draws, divided by $2h$. The checker resets the generator to the same state each time.
#
# ## Dropout in attention
#
# ⟦Attention drops *weights*, after the softmax:
#
# weights → dropout → kept,  output = kept · v⟧
#
# ⟦**Predict first.** Do the rows of `kept` still sum to one? Which of the two belongs in $dv$, weights or kept?⟧
#: the rows of kept sum to one: no; in dv belongs: kept | weights

# %% tags=["varies", "slide-code"]
weights, _ = ops.softmax((q @ k.T) / 2**0.5)
kept, _ = ops.dropout(weights, 0.5, np.random.default_rng(1))
print("row sums of kept:", kept.sum(axis=1))

# %% [markdown]
# ⟦Only on average. The output is the mean of the values under `kept`, so $dv = \text{kept}^\top \text{doutput}$.⟧ On its
# way to the scores the gradient passes first dropout, then the softmax:

# %%
for name in ("attention-no-dropout-in-dv", "attention-no-dropout-in-dweights"):
    with MISTAKES[name].applied():
        report = verify.gradients(ops.attention, q, k, v, dropout=0.5, rng=np.random.default_rng(1))
    print(MISTAKES[name].sentence)
    print("   ", {"d" + row.name: verdict(row) for row in report.of_kind("input")})

# %% [markdown]
# Both variants are right as long as nothing is dropped. **Test with dropout on.**
#
# ## To remember
#
# - True means "may attend"; masks combine with `&`.
# - Put $-\infty$ before the softmax; backward needs no extra line.
# - A fully masked row gives zeros. Test with one.
# - Leaks: ask which output depends on which input. Finite differences cannot find them.
# - Dropout: the same draw forward and backward, divided by $1 - r$.

# %% [markdown]
# ## Exercises
#
# Your function is called with NumPy arrays of several sizes, so write `np`, not `xp`.
#
# ### 8.1 The causal mask, also for fewer queries than keys

# %%
course.exercise("causal_mask")


# %%
def causal_mask(t_q, t_k):
    # your code here
    raise NotImplementedError


# %%
course.check("causal_mask", causal_mask)

# %% [markdown]
# ### 8.2 A softmax with fully masked rows

# %%
course.exercise("masked_softmax_forward")


# %%
def masked_softmax_forward(scores, mask):
    # your code here
    raise NotImplementedError


# %%
course.check("masked_softmax_forward", masked_softmax_forward)

# %% [markdown]
# ### 8.3 Attention with a mask, backward

# %%
course.exercise("masked_attention_backward")


# %%
def masked_attention_backward(q, k, v, mask, doutput):
    # your derivation here
    raise NotImplementedError


# %%
course.check("masked_attention_backward", masked_attention_backward)

# %% [markdown]
# More exercises of this kind: `padding_mask`, `local_mask`, `dropout_forward` and `dropout_backward`;
# `course.exercises()` lists all.
