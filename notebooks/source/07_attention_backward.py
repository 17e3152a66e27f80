# %% [markdown]
# # 7 Attention backward
#
# Everything is ready: the product of matrices (notebook 2), the softmax (notebook 4), the forward pass with numbers (notebook 6). Today we
# walk back through attention, line by line, on the second example of notebook 6, the twin: three tokens, and all other sizes different.
#
# After this hour you can
#
# - derive $dv$, $dq$ and $dk$ and compute them on paper;
# - say in words what each of them means;
# - tell from the *pattern* of wrong gradients which line is at fault.
#
# You need: notebooks 2, 4 and 6.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import minitransformer
from minitransformer import course, ops, verify
from minitransformer.arrays import backend
from minitransformer.course.worked_example import UNEQUAL, self_attention
from minitransformer.show.plots import matrices
from minitransformer.verify import VARIANTS

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Forward, once more
#
# Three tokens, $d_k = 2$, $d_v = 4$, scale $s = 1/\sqrt{2}$:

# %%
x, w_q, w_k, w_v = (xp.asarray(a) for a in (UNEQUAL.x, UNEQUAL.w_q, UNEQUAL.w_k, UNEQUAL.w_v))
scale = 1 / 2**0.5

q, k, v = x @ w_q, x @ w_k, x @ w_v
scores = (q @ k.T) * scale
weights, softmax_backward = ops.softmax(scores)
output = weights @ v
display(matrices(q=q, k=k, v=v))
display(matrices(scores=scores, weights=weights, output=output))

# %% [markdown]
# From above comes $\text{doutput}$, the gradient of the loss with respect to the output. It has the shape of the output. We take whole
# numbers:

# %%
doutput = xp.asarray(UNEQUAL.doutput)
display(matrices(doutput=doutput))

# %% [markdown]
# **The plan.** Three lines forward, so three lines backward, in the opposite order. Each needs only what we know:
#
# | forward | backward | known from |
# |---|---|---|
# | 3. output = weights · v | doutput → dweights, dv | notebook 2 |
# | 2. weights = softmax(scores) | dweights → dscores | notebook 4 |
# | 1. scores = q kᵀ · s | dscores → dq, dk | notebook 2 |
#
# **Predict first.** Write down the shapes of dweights, dv, dscores, dq and dk. (A gradient has the shape of its array: you need not
# think.)

# %% [markdown]
# ## Line 3, backward: output = weights · v
#
# This is $C = AB$ with $A$ = weights and $B = v$. The rule says $dA = dC\,B^\top$ and $dB = A^\top dC$:
#
# $$\text{dweights} = \text{doutput}\; v^\top \qquad\qquad dv = \text{weights}^\top\, \text{doutput}$$
#
# Start with $\text{dweights}_{ij} = \sum_c \text{doutput}_{ic}\, v_{jc}$: row $i$ of doutput times row $j$ of $v$. *Does the loss grow if
# query $i$ looks more at token $j$? It does if $v_j$ points along row $i$ of doutput, the direction in which the loss grows.*
#
# **Predict first**, with a pencil: the first row. All numbers are whole: $(1, 0, 2, -1)$ times each row of $v$.

# %%
dweights = doutput @ v.T
display(matrices(doutput=doutput, v=v, dweights=dweights))

# %% [markdown]
# The loss *grows* by 7 for each unit of weight on token 0, and falls by 6 for each on token 1. Descending means less of the one, more of the other.
#
# Now $dv_{jc} = \sum_i \text{weights}_{ij}\, \text{doutput}_{ic}$. The sum runs over $i$, the **queries**: token $j$'s value was read by every query,
# so it hears back from every query, each as loudly as it listened.
#
# **Predict first.** Look at the columns of the weights. Which value *can* get a large gradient, and which one cannot?

# %%
dv = weights.T @ doutput
display(matrices(weights_transposed=weights.T, doutput=doutput, dv=dv))

# %% [markdown]
# Token 2 was looked at by everyone, token 0 by hardly anyone. Still $dv_{23}$ is only 0.05: queries 0 and 2 read it alike, but their doutput
# is $-1$ and $+1$ there, and nearly cancels. Being read is needed for a gradient; it is not enough.
#
# The transpose is not decoration. $\text{weights}\,\text{doutput}$ has the same shape here, but it would give token $j$ what *it read*, not what
# it *was read for*.
#
# ## Line 2, backward: weights = softmax(scores)
#
# Each row is a softmax of its own, so for each row
#
# $$\text{dscores}_{ij} = \text{weights}_{ij} \Big( \text{dweights}_{ij} - \sum_l \text{dweights}_{il}\, \text{weights}_{il} \Big)$$
#
# **Predict first.** For the first row, weights $(0.0879, 0.1784, 0.7337)$ and dweights $(7, -6, 4)$. Estimate the mean. Which entries of dscores
# are positive? Which is the largest in size?

# %%
mean = (dweights * weights).sum(axis=1, keepdims=True)
dscores = weights * (dweights - mean)
display(matrices(dweights=dweights, weighted_mean=mean, dscores=dscores))

# %% [markdown]
# The mean is about 2.5, pulled towards the 4 of the token that has most of the weight. Token 1 lies 8.5 below the mean: its score is pulled up
# most (its gradient is negative), although it has only 18 % of the weight. Token 0 lies 4.5 above, but with 9 % of the weight it hardly counts.
#
# **Predict first.** What does each row of dscores sum to?

# %%
print("row sums are zero:", bool((abs(dscores.sum(axis=1)) < 1e-12).all()))
print("column sums:      ", dscores.sum(axis=0))

# %% [markdown]
# Rows: zero, because adding a constant to all scores of a query changes nothing. Columns: nothing special.
#
# ## Line 1, backward: scores = q kᵀ · s
#
# Again $C = AB$, now with $A = q$ and $B = k^\top$, and a factor $s$. For $q$ the rule gives $dA = dC\,B^\top$, so
#
# $$dq = s\;\text{dscores}\; k$$
#
# For $k$ it gives $dB = A^\top dC$, which is the gradient of $k^\top$; transpose it once more, $(q^\top \text{dscores})^\top = \text{dscores}^\top q$:
#
# $$dk = s\;\text{dscores}^\top\, q$$
#
# The same from indices, without any rule: $\text{scores}_{ij} = s \sum_c q_{ic} k_{jc}$, so $q_{ic}$ occurs in row $i$ with factor $s\,k_{jc}$, and
# $k_{jc}$ in column $j$ with factor $s\,q_{ic}$:
#
# $$dq_{ic} = s \sum_j \text{dscores}_{ij}\, k_{jc} \qquad\qquad dk_{jc} = s \sum_i \text{dscores}_{ij}\, q_{ic}$$
#
# A query hears from all keys, a key from all queries.

# %%
dq = (dscores @ k) * scale
dk = (dscores.T @ q) * scale
display(matrices(dscores=dscores, dq=dq, dk=dk))

# %% [markdown]
# Three gradients. Are they right? Ask the second witness of notebook 1, finite differences. It also looks inside: every intermediate that has
# a `d...` is checked. `attention.kept` is what dropout leaves of the weights (notebook 8; here there is none, so kept = weights). `softmax.x` and
# `softmax.y` are scores and weights once more, as the softmax calls them.

# %% tags=["varies"]
library_output, backward = ops.attention(q, k, v)
agree = all(
    bool(abs(a - b).max() < 1e-12) for a, b in zip((dq, dk, dv), backward(doutput), strict=True)
)
print("the library gives the same dq, dk, dv:", agree, "\n")
print(verify.gradients(ops.attention, q, k, v, upstream=doutput))

# %% [markdown]
# ## Back to the tokens
#
# $q = x W_Q$, $k = x W_K$, $v = x W_V$: three linear maps of the *same* $x$. Each sends a gradient back, and used three times means three
# gradients, **added**:
#
# $$dW_Q = x^\top dq, \quad \dots \qquad\qquad dx = dq\,W_Q^\top + dk\,W_K^\top + dv\,W_V^\top$$
#
# (`ops.attention` takes $1/\sqrt{d_k}$ by itself. `self_attention`, the function of notebook 6, does not scale unless it is told to: `scale=scale`.)

# %%
display(matrices(by_q=dq @ w_q.T, by_k=dk @ w_k.T, by_v=dv @ w_v.T, dx=dq @ w_q.T + dk @ w_k.T + dv @ w_v.T))
report = verify.gradients(self_attention, x, w_q, w_k, w_v, scale=scale, upstream=doutput)
print({row.name: row.ok for row in report.of_kind("input")})

# %% [markdown]
# ## Four things that the formulas tell
#
# **1. A bias on the keys learns nothing.** Add the same vector $b$ to every key: scores$_{ij}$ grows by $s\, q_i \cdot b$, the same for all $j$ of a
# row, and softmax does not see it. So the gradient of $b$, which is the sum of $dk$ over the tokens, must be zero. **Predict first:** does the
# sum of $dq$ vanish too?

# %%
print("sum of dk is zero:", bool((abs(dk.sum(axis=0)) < 1e-12).all()))
print("sum of dq:        ", dq.sum(axis=0))

# %% [markdown]
# It does not: the same $b$ added to every query adds $s\, b \cdot k_j$ to scores$_{ij}$, which differs from $j$ to $j$ within a row. That the softmax sees.
#
# (A relative error would divide 0 by 0 here. That is why a gradient check needs an absolute tolerance as well.)
#
# **2. Where all values are alike there is nothing to choose.** Then each row of dweights is constant, so it equals its own mean.

# %%
same_values = xp.ones((3, 1)) * v[:1]
dq_same, dk_same, dv_same = ops.attention(q, k, same_values)[1](doutput)
print("dq and dk are zero:", bool(max(abs(dq_same).max(), abs(dk_same).max()) < 1e-12))

# %% [markdown]
# **3. Decided attention cannot change its mind.** Multiply the queries, and so the scores, and the weights go to 0 and 1. (The code multiplies the
# scores at once; dweights = doutput · vᵀ does not depend on them.) **Predict first:** which rows of dscores survive? Does dv?

# %%
print("scores times   largest weight of each row   largest |dscores| of each row   largest |dv|")
for factor in (1, 3, 10):
    weights_f, softmax_backward_f = ops.softmax(factor * scores)
    dscores_f = softmax_backward_f(dweights)
    dv_f = weights_f.T @ doutput
    rows = f"{weights_f.max(axis=1)!s:26}   {abs(dscores_f).max(axis=1)!s:29}"
    print(f"{factor:12}   {rows}   {float(abs(dv_f).max()):.4f}")

# %% [markdown]
# Row 1 has two equal favourites, so it stays undecided and keeps its gradient. The other two rows are decided and pass nothing on, to neither queries nor
# keys, though dweights is as large as ever. Only the values always learn: $dv$ needs no slope of the softmax.
# Here is the reason for $1/\sqrt{d_k}$ once more, seen from the backward pass.
#
# **4. Backward needs the weights again.** They are $T_q \times T_k$ for each head and each sequence, and have to be kept from the forward pass:

# %%
B, H, T, d = 16, 8, 2048, 64
print(f"weights of one layer in float32: {4 * B * H * T * T / 1e9:.1f} GB")
print(f"its q, k and v together:         {4 * B * H * T * d * 3 / 1e9:.1f} GB")

# %% [markdown]
# ## Which line was it?
#
# A mistake spoils what is computed from it: whatever comes later in the backward pass is wrong, whatever came earlier is still right.
#
# **Predict first.** Which of dq, dk, dv, dscores come out wrong for each of these?
#
# - A: the factor $s$ is missing in dk
# - B: dv uses the weights without their transpose
# - C: the softmax is skipped on the way back
# - D: $s$ is put into dscores and again into dq and dk

# %%
letters = {
    "A": "attention-dk-not-scaled",
    "B": "attention-dv-not-transposed",
    "C": "attention-no-softmax-in-backward",
    "D": "attention-scaled-in-dscores-and-dk",
}
wrong_dq = {}
print("     dq      dk      dv      dscores")
for letter, name in letters.items():
    with VARIANTS[name].applied():
        rows = verify.gradients(ops.attention, q, k, v, upstream=doutput)
        wrong_dq[letter] = ops.attention(q, k, v)[1](doutput)[0]
    verdicts = ["ok" if rows[name].ok else "WRONG" for name in ("q", "k", "v", "attention.scores")]
    print(f"{letter}:   " + "".join(f"{verdict:8}" for verdict in verdicts))

# %% [markdown]
# C and D show the same pattern. What tells them apart is the ratio, wrong by right. **Predict first:** what is it for D? And B? Its shapes are
# right only because there are as many queries as keys. Take two queries and three keys, and it cannot even run:

# %%
display(matrices(C_ratio_of_dq=wrong_dq["C"] / dq, D_ratio_of_dq=wrong_dq["D"] / dq))
for letter, name in letters.items():
    with VARIANTS[name].applied():
        try:
            ops.attention(q[:2], k, v)[1](doutput[:2])
            print(f"{letter}: runs")
        except ValueError:
            print(f"{letter}: the shapes do not fit")

# %% [markdown]
# D: one factor everywhere, $s = 0.71$; a constant ratio is a scale. C: any number, of either sign; a whole step is missing.
#
# So: **let all sizes differ**, and a missing transpose announces itself, as B does. A, C and D run all the same: unequal sizes do not catch them,
# only comparing numbers does. And do not "repair" an error of shapes with a reshape: that was the mistake of notebook 1, and nothing announces it.

# %% [markdown]
# ## Exercises
#
# ### 7.1 The whole backward pass
#
# Derive it once more on a blank sheet, without scrolling up; then type. There is a batch in front, so write `swapaxes(-1, -2)` where we wrote
# `.T`, and `-1` for the last axis; $d_k$ is `q.shape[-1]`. Your function is called with NumPy arrays, all sizes different, so write `np`, not `xp`.
# You get credit for each of the three gradients: return `None` for those that you do not have yet.

# %%
course.exercise("attention_backward")


# %%
def attention_backward(q, k, v, weights, doutput):
    # your derivation here
    raise NotImplementedError


# %%
course.check("attention_backward", attention_backward)

# %% [markdown]
# Right? Then compare with what to remember:
#
# $$\begin{aligned}
# \text{dweights} &= \text{doutput}\; v^\top & dv &= \text{weights}^\top\,\text{doutput} \\
# \text{dscores} &= \text{weights} \odot (\text{dweights} - \text{row means under the weights}) \\
# dq &= s\;\text{dscores}\;k & dk &= s\;\text{dscores}^\top q
# \end{aligned}$$
#
# and step through the library's own lines (the backward pass is the second half). Choose "predict" to have the next matrix covered; click a number to
# see the sum it came from; switch on a mistake and see which numbers turn red.

# %%
minitransformer.step(ops.attention, q, k, v, upstream=doutput, verify=True)

# %% [markdown]
# ### 7.2 One matrix for queries and keys
#
# Some models share it: $q = x W$ and $k = x W$. Complete the backward pass: which gradients are sums now, and of what? Run the cell until the
# table says "ok" three times. *Hint:* how many ways does $x$ go from here, and how many does $W$? Every way back gives a term, as in "Back to the
# tokens". A line that says WRONG with 0 by hand is one that you have not written.


# %% tags=["varies"]
def shared_attention(x, w, w_v):
    q, k, v = x @ w, x @ w, x @ w_v
    output, library_backward = ops.attention(q, k, v)

    def backward(doutput):
        dq, dk, dv = library_backward(doutput)
        dx = xp.zeros_like(x)  # your derivation here
        dw = xp.zeros_like(w)  # and here
        dw_v = xp.zeros_like(w_v)  # and here
        return dx, dw, dw_v

    return output, backward


print(verify.gradients(shared_attention, x, w_q, w_v, intermediates=False))

# %% [markdown]
# ### 7.3 With a pencil (at home)
#
# 1. Replace doutput by a matrix that is zero but for $\text{doutput}_{00} = 1$. Compute dweights (whole numbers), then the first row of dscores
#    in terms of the weights $w_0, w_1, w_2$ of the first query. Which entries of $dv$ are not zero? Fill in what you found:

# %%
single = xp.zeros_like(doutput)
single[0, 0] = 1.0
w0, w1, w2 = (float(w) for w in weights[0])
your_dweights = xp.zeros((3, 3))  # fill in
your_dscores = xp.array([0 * w0, 0 * w1, 0 * w2])  # the first row, with w0, w1, w2; fill in
your_dv = xp.zeros((3, 4), dtype=bool)  # True where dv is not zero; fill in

print("dweights right:            ", bool((your_dweights == single @ v.T).all()))
print("first row of dscores right:", bool(abs(your_dscores - softmax_backward(single @ v.T)[0]).max() < 1e-12))
print("entries of dv right:       ", bool((your_dv == (weights.T @ single != 0)).all()))

# %% [markdown]
# 2. Show from the formulas that $\sum_{ic} dq_{ic}\, q_{ic} = \sum_{jc} dk_{jc}\, k_{jc}$, and check it with the numbers above. *Hint:* put the formula of
#    $dq$ in on the left and look for scores$_{ij}$. What it means: multiply all queries by $c$ and divide all keys by $c$, and no score changes, so neither
#    does the loss. Its derivative with respect to $c$ at $c = 1$ is left side minus right side.
