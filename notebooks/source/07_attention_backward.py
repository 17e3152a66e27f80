# %% [markdown]
# # 7 Attention backward
#
# We have all the parts: the matrix product (notebook 2), the softmax (notebook 4), the forward pass with numbers
# (notebook 6). Now we go back through attention, line by line, with the second example of notebook 6, the twin: three
# tokens, and all other sizes different.
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
from minitransformer import backend, course, ops, verify
from minitransformer.course import MISTAKES
from minitransformer.school.course.worked_example import UNEQUAL, self_attention
from minitransformer.school.show.plots import matrices

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Forward, once more
#
# ⟦Three tokens, $d_k = 2$, $d_v = 4$, scale $s = 1/\sqrt{2}$:⟧

# %% tags=["slide"]
x, w_q, w_k, w_v = (xp.asarray(a) for a in (UNEQUAL.x, UNEQUAL.w_q, UNEQUAL.w_k, UNEQUAL.w_v))
scale = 1 / 2**0.5

q, k, v = x @ w_q, x @ w_k, x @ w_v
scores = (q @ k.T) * scale
weights, softmax_pullback = ops.softmax(scores)
output = weights @ v
display(matrices(q=q, k=k, v=v))
display(matrices(scores=scores, weights=weights, output=output))

# %% [markdown]
# ⟦The upstream gradient is $\text{doutput}$, the gradient of the loss with respect to the output.⟧ It has the shape of
# the output. We take whole numbers:

# %% tags=["slide"]
doutput = xp.asarray(UNEQUAL.doutput)
display(matrices(doutput=doutput))

# %% [markdown]
# ⟦**The plan.** Three lines forward, so three lines backward, in the opposite order.⟧ Each uses only what we know:
#
# ⟦| forward | backward | known from |
# |---|---|---|
# | 3. output = weights · v | doutput → dweights, dv | notebook 2 |
# | 2. weights = softmax(scores) | dweights → dscores | notebook 4 |
# | 1. scores = q kᵀ · s | dscores → dq, dk | notebook 2 |⟧
#
# ⟦**Predict first.** Write down the shapes of dweights, dv, dscores, dq and dk. (Remember that a gradient has the shape
# of its array.)⟧
#: dweights: (3, 3); dv: (3, 4); dscores: (3, 3); dq: (3, 2); dk: (3, 2)

# %% [markdown]
# ## Line 3, backward: output = weights · v
#
# ⟦This is $C = AB$ with $A$ = weights and $B = v$.⟧ The rule says $dA = dC\,B^\top$ and $dB = A^\top dC$:
#
# ⟦$$\text{dweights} = \text{doutput}\; v^\top \qquad\qquad dv = \text{weights}^\top\, \text{doutput}$$⟧
#
# Start with $\text{dweights}_{ij} = \sum_c \text{doutput}_{ic}\, v_{jc}$: row $i$ of doutput times row $j$ of $v$. It
# answers the question: does the loss grow if query $i$ looks more at token $j$? It does if $v_j$ points along row $i$
# of doutput, the direction in which the loss grows.
#
# ⟦**Predict first**, with a pencil: the first row of dweights. All numbers are whole: $(1, 0, 2, -1)$ times each row of
# $v$, which are $(1, 2, 3, 0)$, $(2, 2, 0, 8)$ and $(2, 3, 3, 4)$.⟧
#: the first row: (7, -6, 4)

# %% tags=["slide"]
dweights = doutput @ v.T
display(matrices(doutput=doutput, v=v, dweights=dweights))

# %% [markdown]
# ⟦The loss *grows* by 7 per unit of weight on token 0, and falls by 6 per unit of weight on token 1.⟧ So gradient descent
# wants less weight on token 0 and more on token 1.
#
# Now $dv_{jc} = \sum_i \text{weights}_{ij}\, \text{doutput}_{ic}$. The sum runs over $i$, the **queries**: every query
# read the value of token $j$, so every query contributes to its gradient, in proportion to its weight.
#
# ⟦**Predict first.** The columns of the weights are $(0.09, 0.03, 0.02)$, $(0.18, 0.49, 0.19)$ and
# $(0.73, 0.49, 0.79)$. Which value *can* get a large gradient, and which cannot?⟧
#: can, the value of token: 2 | 0 | 1; cannot, the value of token: 0 | 1 | 2

# %% tags=["slide"]
dv = weights.T @ doutput
display(matrices(weights_transposed=weights.T, doutput=doutput, dv=dv))

# %% [markdown]
# ⟦All queries look at token 2, hardly any at token 0.⟧ Still $dv_{23}$ is only 0.05: queries 0 and 2 read token 2 about
# equally, but their entries of doutput there, $-1$ and $+1$, nearly cancel. A value must be read to get a gradient, but
# that is not enough.
#
# The transpose matters. $\text{weights}\,\text{doutput}$ has the same shape here, but it sums over the tokens that
# token $j$ *reads*, not over the queries that *read token $j$*.
#
# ## Line 2, backward: weights = softmax(scores)
#
# ⟦Each row is a softmax of its own, so for each row⟧
#
# ⟦$$\text{dscores}_{ij} = \text{weights}_{ij} \Big( \text{dweights}_{ij} - \sum_l \text{dweights}_{il}\, \text{weights}_{il} \Big)$$⟧
#
# ⟦**Predict first.** For the first row, weights $(0.0879, 0.1784, 0.7337)$ and dweights $(7, -6, 4)$. Estimate the mean.
# Which entries of dscores are positive? Which one has the largest absolute value?⟧
#: signs of the first row of dscores: + - +
#: largest absolute value, the entry of token: 1 | 0 | 2

# %% tags=["slide"]
mean = (dweights * weights).sum(axis=1, keepdims=True)
dscores = weights * (dweights - mean)
display(matrices(dweights=dweights, weighted_mean=mean, dscores=dscores))

# %% [markdown]
# ⟦The mean is about 2.5, pulled towards the 4 of the token that has most of the weight.⟧ Token 1 lies 8.5 below the mean,
# so it gets the largest gradient, although it has only 18 % of the weight. That gradient is negative: descent raises
# its score. Token 0 lies 4.5 above the mean, but with 9 % of the weight it hardly counts.
#
# ⟦**Predict first.** What does each row of dscores sum to?⟧
#: each row sums to: 0

# %% tags=["slide-code"]
print("row sums:   ", dscores.sum(axis=1).round(6) + 0.0)
print("column sums:", dscores.sum(axis=0).round(6) + 0.0)

# %% [markdown]
# ⟦Each row sums to zero, because adding a constant to all scores of a query changes nothing.⟧ The columns have no such
# rule.
#
# ## Line 1, backward: scores = q kᵀ · s
#
# ⟦Again $C = AB$, now with $A = q$ and $B = k^\top$, and a factor $s$.⟧ For $q$ the rule gives $dA = dC\,B^\top$, so
#
# ⟦$$dq = s\;\text{dscores}\; k$$⟧
#
# For $k$ it gives $dB = A^\top dC$, which is the gradient of $k^\top$. Transpose it once more,
# $(q^\top \text{dscores})^\top = \text{dscores}^\top q$:
#
# ⟦$$dk = s\;\text{dscores}^\top\, q$$⟧
#
# The same from the indices: $\text{scores}_{ij} = s \sum_c q_{ic} k_{jc}$, so $q_{ic}$ occurs in row $i$ with factor
# $s\,k_{jc}$, and $k_{jc}$ in column $j$ with factor $s\,q_{ic}$:
#
# $$dq_{ic} = s \sum_j \text{dscores}_{ij}\, k_{jc} \qquad\qquad dk_{jc} = s \sum_i \text{dscores}_{ij}\, q_{ic}$$
#
# A query gets contributions from all keys, a key from all queries.

# %% tags=["slide"]
dq = (dscores @ k) * scale
dk = (dscores.T @ q) * scale
display(matrices(dscores=dscores, dq=dq, dk=dk))

# %% [markdown]
# Three gradients. Are they right? Ask the second witness of notebook 1, finite differences. It also checks every
# intermediate that has a partner `d...`. `attention.kept` is what dropout leaves of the weights (notebook 8); without
# dropout it equals the weights. `softmax.x` and `softmax.y` are the scores and the weights, under the names that
# softmax gives them.

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
# ⟦$q = x W_Q$, $k = x W_K$, $v = x W_V$: three linear maps of the *same* $x$.⟧ Each sends a gradient back. $x$ is used
# three times, so its three gradients **add up**:
#
# ⟦$$dW_Q = x^\top dq, \quad \dots \qquad\qquad dx = dq\,W_Q^\top + dk\,W_K^\top + dv\,W_V^\top$$⟧
#
# (`ops.attention` scales by $1/\sqrt{d_k}$ by default. `self_attention`, the function of notebook 6, scales only if you
# pass `scale=scale`.)

# %% tags=["slide"]
display(matrices(by_q=dq @ w_q.T, by_k=dk @ w_k.T, by_v=dv @ w_v.T, dx=dq @ w_q.T + dk @ w_k.T + dv @ w_v.T))
report = verify.gradients(self_attention, x, w_q, w_k, w_v, scale=scale, upstream=doutput)
print({row.name: row.ok for row in report.of_kind("input")})

# %% [markdown]
# ## Four consequences of the formulas
#
# ⟦**1. A bias on the keys learns nothing.** Add the same vector $b$ to every key: scores$_{ij}$ grows by
# $s\, q_i \cdot b$, the same for all $j$ of a row, and softmax ignores it. So the gradient of $b$, which is the sum of
# $dk$ over the tokens, must be zero. **Predict first:** is the sum of $dq$ zero too?⟧
#: the sum of dq is zero: no

# %% tags=["slide-code"]
print("sum of dk is zero:", bool((abs(dk.sum(axis=0)) < 1e-12).all()))
print("sum of dq:        ", dq.sum(axis=0))

# %% [markdown]
# ⟦It is not: the same $b$ added to every query adds $s\, b \cdot k_j$ to scores$_{ij}$.⟧ That differs within a row, so
# softmax does see it.
#
# (A relative error would divide 0 by 0 here, so a gradient check needs an absolute tolerance as well.)
#
# **2. Where all values are equal there is nothing to choose.** Then each row of dweights is constant, so it equals its
# own mean, and dscores is zero.

# %%
same_values = xp.ones((3, 1)) * v[:1]
dq_same, dk_same, dv_same = ops.attention(q, k, same_values)[1](doutput)
print("dq and dk are zero:", bool(max(abs(dq_same).max(), abs(dk_same).max()) < 1e-12))

# %% [markdown]
# ⟦**3. Saturated attention passes no gradient to queries and keys.** Multiply the queries, and with them the scores, by
# a large factor: the weights go to 0 and 1.⟧ (The code multiplies the scores directly; dweights = doutput · vᵀ does not
# depend on them.)
#
# ⟦**Predict first.** The rows of the scores are $(3.54, 4.24, 5.66)$, $(2.83, 5.66, 5.66)$ and $(4.95, 7.07, 8.49)$.
# Which rows of dscores stay large? Does dv?⟧
#: stays large, row: 1 | 0 | 2; dv stays large: yes

# %% tags=["slide"]
print("scores times   largest weight of each row   largest |dscores| of each row   largest |dv|")
for factor in (1, 3, 10):
    weights_f, softmax_pullback_f = ops.softmax(factor * scores)
    dscores_f = softmax_pullback_f(dweights)
    dv_f = weights_f.T @ doutput
    rows = f"{weights_f.max(axis=1)!s:26}   {abs(dscores_f).max(axis=1)!s:29}"
    print(f"{factor:12}   {rows}   {float(abs(dv_f).max()):.4f}")

# %% [markdown]
# ⟦Row 1 has two equal largest scores, so it stays undecided and keeps its gradient.⟧ The other two rows are saturated and
# pass almost nothing to queries and keys, although dweights is as large as before. Only the values always learn, since
# $dv$ contains no slope of the softmax. This is the reason for $1/\sqrt{d_k}$ again, seen from the backward pass.
#
# **4. Backward needs the weights again.** They take $T_q \times T_k$ numbers for each head and each sequence, and must
# be kept from the forward pass:

# %%
B, H, T, d = 16, 8, 2048, 64
print(f"weights of one layer in float32: {4 * B * H * T * T / 1e9:.1f} GB")
print(f"its q, k and v together:         {4 * B * H * T * d * 3 / 1e9:.1f} GB")

# %% [markdown]
# ## Which line was it?
#
# ⟦A mistake spoils everything that is computed from it later in the backward pass.⟧ What was computed earlier is still
# right.
#
# ⟦**Predict first.** Which of dq, dk, dv, dscores come out wrong for each of these?
#
# - 1: the factor $s$ is missing in dk
# - 2: dv uses the weights without their transpose
# - 3: the softmax is skipped on the way back
# - 4: $s$ is put into dscores and again into dq and dk⟧
#: 1: dk | dv | dq, dk and dscores | all four
#: 2: dv | dk | dq, dk and dscores | all four
#: 3: dq, dk and dscores | dk | dv | all four
#: 4: dq, dk and dscores | dk | dv | all four

# %% tags=["slide"]
mistakes = {
    1: "attention-dk-not-scaled",
    2: "attention-dv-not-transposed",
    3: "attention-no-softmax-in-backward",
    4: "attention-scaled-in-dscores-and-dk",
}
wrong_dq = {}
print("     dq      dk      dv      dscores")
for number, name in mistakes.items():
    with MISTAKES[name].applied():
        rows = verify.gradients(ops.attention, q, k, v, upstream=doutput)
        wrong_dq[number] = ops.attention(q, k, v)[1](doutput)[0]
    verdicts = ["ok" if rows[name].ok else "WRONG" for name in ("q", "k", "v", "attention.scores")]
    print(f"{number}:   " + "".join(f"{verdict:8}" for verdict in verdicts))

# %% [markdown]
# ⟦Mistakes 3 (the softmax is skipped) and 4 ($s$ twice) show the same pattern. The ratio wrong / right tells them apart.
# **Predict first:** what is it for mistake 4? And which of the four cannot even run with two queries and three
# keys? (Here there are as many queries as keys.)⟧
#: the ratio for mistake 4: 0.71
#: which cannot run: 2 | 1 | 3 | 4

# %% tags=["slide"]
display(matrices(ratio_of_dq_in_3=wrong_dq[3] / dq, ratio_of_dq_in_4=wrong_dq[4] / dq))
for number, name in mistakes.items():
    with MISTAKES[name].applied():
        try:
            ops.attention(q[:2], k, v)[1](doutput[:2])
            print(f"{number}: runs")
        except ValueError:
            print(f"{number}: the shapes do not fit")

# %% [markdown]
# ⟦Mistake 4: the ratio is $s = 0.71$ everywhere; a constant ratio means a wrong scale.⟧ Mistake 3: the ratios have all
# sizes and both signs; a whole step is missing.
#
# So **let all sizes differ**: then a missing transpose raises an error, as in mistake 2. The others still
# run; only comparing numbers finds them. And never "repair" a shape error with a reshape: that was the mistake of notebook 1, and it raises
# no error.

# %% [markdown]
# ## Exercises
#
# ### 7.1 The whole backward pass
#
# Derive it once more on a blank sheet, without scrolling up; then type. The arrays have a batch axis in front, so write
# `swapaxes(-1, -2)` where we wrote `.T`, and `-1` for the last axis; $d_k$ is `q.shape[-1]`. Your function is called
# with NumPy arrays, all sizes different, so write `np`, not `xp`. You get credit for each of the three gradients:
# return `None` for those that you have not derived yet.

# %%
course.exercise("attention_backward")


# %%
def attention_backward(q, k, v, weights, doutput):
    # your derivation here
    raise NotImplementedError


# %%
course.check("attention_backward", attention_backward)

# %% [markdown]
# When it is right, compare it with what to remember:
#
# $$\begin{aligned}
# \text{dweights} &= \text{doutput}\; v^\top & dv &= \text{weights}^\top\,\text{doutput} \\
# \text{dscores} &= \text{weights} \odot (\text{dweights} - \text{row means under the weights}) \\
# dq &= s\;\text{dscores}\;k & dk &= s\;\text{dscores}^\top q
# \end{aligned}$$
#
# and step through the library's own lines (the backward pass is the second half). "predict" covers the next matrix;
# click a number to see the sum it came from; switch on a mistake and see which numbers turn red.

# %%
minitransformer.step(ops.attention, q, k, v, upstream=doutput, verify=True)

# %% [markdown]
# ### 7.2 One matrix for queries and keys
#
# Some models share one matrix: $q = x W$ and $k = x W$. Complete the backward pass: which gradients are sums now, and
# of what? Run the cell until the table says "ok" three times. *Hint:* how often is $x$ used, and how often $W$? Every
# use gives a term, as in "Back to the tokens". A row that says WRONG with 0 by hand is one that you have not written
# yet.


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
# 1. Replace doutput by a matrix that is zero except for $\text{doutput}_{00} = 1$. Compute dweights (whole numbers),
#    then the first row of dscores
#    in terms of the weights $w_0, w_1, w_2$ of the first query. Which entries of $dv$ are not zero? Fill in what you
#    found:

# %%
single = xp.zeros_like(doutput)
single[0, 0] = 1.0
w0, w1, w2 = (float(w) for w in weights[0])
your_dweights = xp.zeros((3, 3))  # fill in
your_dscores = xp.array([0 * w0, 0 * w1, 0 * w2])  # the first row, with w0, w1, w2; fill in
your_dv = xp.zeros((3, 4), dtype=bool)  # True where dv is not zero; fill in

print("dweights right:            ", bool((your_dweights == single @ v.T).all()))
print("first row of dscores right:", bool(abs(your_dscores - softmax_pullback(single @ v.T)[0]).max() < 1e-12))
print("entries of dv right:       ", bool((your_dv == (weights.T @ single != 0)).all()))

# %% [markdown]
# 2. Show from the formulas that $\sum_{ic} dq_{ic}\, q_{ic} = \sum_{jc} dk_{jc}\, k_{jc}$, and check it with the numbers above.
#    *Hint:* substitute the formula of $dq$ on the left and look for scores$_{ij}$. What it means: if you multiply all queries
#    by $c$ and divide all keys by $c$, no score changes, so the loss does not change. Its derivative with respect to $c$ at
#    $c = 1$ is the left side minus the right side.
