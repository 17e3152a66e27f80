# %% [markdown]
# # 3 Softmax, temperature, stability
#
# Attention compares a query with every key and gets scores, any real numbers. It needs weights, which are positive and
# sum to one. Softmax turns scores into weights.
#
# After this hour you can
#
# - compute a softmax with pencil and paper, and say what changes it and what does not;
# - write one that neither overflows nor divides zero by zero;
# - explain temperature, and why attention divides by $\sqrt{d_k}$.
#
# You need: $e^x$ and logarithms.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, ops
from minitransformer.course import MISTAKES

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## From scores to weights
#
# ⟦$$y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$⟧
#
# ⟦It takes two steps: $e^x$ makes everything positive, and dividing by the sum makes it add up to one.⟧
#
# ⟦**Predict first**, without a calculator: the softmax of $x = (\ln 1, \ln 2, \ln 4)$.⟧
#: the weights: (1/7, 2/7, 4/7)


# %% tags=["slide"]
def softmax(x):
    exponentials = xp.exp(x)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


x = xp.log(xp.array([1.0, 2.0, 4.0]))
y = softmax(x)
print("scores     ", x)
print("weights    ", y)
print("in sevenths", 7 * y)

# %% [markdown]
# ⟦The exponentials are 1, 2, 4, their sum is 7, the weights are $\frac17, \frac27, \frac47$.⟧ We keep this example
# through the next two notebooks.
#
# ## What changes it and what does not
#
# ⟦The ratio of two weights depends only on the *difference* of their scores:⟧
#
# ⟦$$\frac{y_i}{y_j} = \frac{e^{x_i}}{e^{x_j}} = e^{x_i - x_j}$$⟧
#
# ⟦**Predict first.** What happens to the weights if every score grows by 10? If every score is doubled?⟧
#: every score + 10: (1/7, 2/7, 4/7); every score doubled: (1/21, 4/21, 16/21)

# %% tags=["slide-code"]
print("x        ", softmax(x))
print("x + 10   ", softmax(x + 10.0))
print("2 x      ", softmax(2.0 * x), " times 21", 21 * softmax(2.0 * x))


# %% [markdown]
# - Adding a constant multiplies all exponentials by the same $e^{10}$, which cancels. Softmax cannot see it. Remember
#   this: it rescues us below, and it makes a gradient vanish in notebook 4.
# - Doubling the scores squares each ratio of weights: here the weights are 1, 4 and 16 parts of 21. The largest weight
#   grows at the expense of the others.
#
# ⟦A weight is never exactly 0 or 1, because $e^x > 0$.⟧ And the largest score always gets the largest weight.

# %% [markdown]
# ## Stability
#
# ⟦**Predict first.** The softmax of (1000, 1000, 1000) must be $(\frac13, \frac13, \frac13)$. What does
# $e^{x_i} / \sum_j e^{x_j}$ return, computed as it stands?⟧
#: returns: (nan, nan, nan)

# %% tags=["slide-code"]
with np.errstate(all="ignore"):
    print(softmax(xp.array([1000.0, 1000.0, 1000.0])))
    print(softmax(xp.array([-1000.0, -1000.0, -1000.0])))

# %% [markdown]
# ⟦$e^{1000}$ is `inf`, and `inf / inf` is `nan`, not a number.⟧ And $e^{-1000}$ is rounded to 0, so the second line is
# 0/0. How large may a score be? The range of floating-point numbers decides:

# %%
for dtype in (np.float16, np.float32, np.float64):
    largest = float(np.finfo(dtype).max)
    print(f"{dtype.__name__}: largest {largest:8.3g}; exp overflows beyond {np.log(largest):6.1f}")

# %% [markdown]
# In float16 a score of 12 is too large! But a shift does not change the softmax, so we may choose one. Subtract the
# **largest** score:
#
# ⟦$$y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \qquad m = \max_j x_j$$⟧
#
# Now every exponent is at most 0, so every exponential is at most 1: no overflow. One of them is $e^0 = 1$, so the sum
# is at least 1: no division by zero. A score that underflows to 0 had a weight near 0 anyway.


# %%
def stable_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    exponentials = xp.exp(shifted)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


print(stable_softmax(xp.array([1000.0, 1000.0, 1000.0])))
print(stable_softmax(xp.array([-1000.0, -1000.0, -1000.0])))
print(stable_softmax(xp.array([1000.0, 0.0, -1000.0])))

# %% [markdown]
# ⟦**Predict first.** Would subtracting the mean work as well? And the maximum of the *whole array*, when the array has
# several rows?⟧
#
# Try the mean on (1000, 0, 0, 0), and the overall maximum on the rows (1000, 999) and (1, 0).
#: subtracting the mean works: no; the maximum of the whole array works: no

# %% tags=["slide"]
with np.errstate(all="ignore"):
    row = xp.array([1000.0, 0.0, 0.0, 0.0])
    print("minus the mean:           ", softmax(row - row.mean()))
    rows = xp.array([[1000.0, 999.0], [1.0, 0.0]])
    print("minus the overall maximum:", softmax(rows - rows.max()).round(4).tolist())
    print("minus each row's maximum: ", stable_softmax(rows).round(4).tolist())

# %% [markdown]
# ⟦(1000, 0, 0, 0) minus its mean leaves 750, which still overflows. The rows (1000, 999) and (1, 0) minus the overall
# maximum leave a row near −999, which underflows to 0/0.⟧ It must be the maximum of **each row**.
#
# ### The logarithm of a softmax
#
# ⟦A loss needs $\ln y_i$. Taking the softmax first and then its logarithm loses what underflowed.⟧ Simplify on paper
# instead:
#
# ⟦$$\ln y_i = (x_i - m) - \ln \sum_j e^{x_j - m}$$⟧
#
# The right side never takes the logarithm of a tiny number.

# %%
x_far = xp.array([0.0, 1000.0])
with np.errstate(all="ignore"):
    print("log(softmax(x)):  ", xp.log(stable_softmax(x_far)))
shifted = x_far - x_far.max()
print("from the formula: ", shifted - xp.log(xp.exp(shifted).sum()))

# %% [markdown]
# ## Temperature
#
# ⟦Divide the scores by a number $T > 0$ before the softmax:⟧
#
# ⟦$$y_i = \frac{e^{x_i/T}}{\sum_j e^{x_j/T}}$$⟧
#
# ⟦**Predict first.** What do the weights of $(\ln 1, \ln 2, \ln 4)$ approach when $T \to 0$? When $T \to \infty$? And at
# $T = 0.5$?⟧
#: T → 0: (0, 0, 1); T → ∞: (1/3, 1/3, 1/3); T = 0.5: (1/21, 4/21, 16/21)

# %% tags=["slide"]
temperatures = (0.1, 0.5, 1.0, 2.0, 10.0)
figure, all_axes = plt.subplots(1, len(temperatures), figsize=(8, 1.8), sharey=True)
for axes, T in zip(all_axes, temperatures, strict=True):
    weights, _ = ops.softmax(x, temperature=T)
    axes.bar(range(3), backend.to_numpy(weights))
    axes.set(title=f"T = {T}", xticks=range(3), ylim=(0, 1))
    print(f"T = {T:4}: {weights}")

# %% [markdown]
# - $T \to 0$: all weight goes to the largest score, the hard maximum. (If two scores are equally large, they share it.)
# - $T \to \infty$: all weights become equal; the scores no longer matter.
# - $T = 0.5$ doubles the scores: 1, 4, 16 parts of 21, as above.
#
# ⟦The entropy $-\sum_i y_i \ln y_i$ measures how undecided the weights are, from 0 (one weight is 1) to $\ln 3$ (all are
# equal):⟧

# %% tags=["slide"]
T = xp.asarray(np.logspace(-1.5, 1.5, 60))
p = stable_softmax(x / T[:, None])
entropy = -(p * xp.log(xp.maximum(p, 1e-300))).sum(axis=-1)
plt.figure(figsize=(4.5, 2.5))
plt.semilogx(backend.to_numpy(T), backend.to_numpy(entropy))
plt.axhline(np.log(3), ls="--", color="grey", lw=1)
plt.xlabel("temperature")
plt.ylabel("entropy (nats)")
plt.show()

# %% [markdown]
# ⟦Scores are divided by the temperature, not multiplied. The mistake is easy to miss, because at $T = 1$ nothing is
# wrong:⟧

# %%
mistake = MISTAKES["softmax-temperature-multiplies"]
print(mistake.sentence)
with mistake.applied():
    for T in (1.0, 0.1):
        print(f"T = {T}: {ops.softmax(x, temperature=T)[0]}")

# %% [markdown]
# ## Why attention divides by $\sqrt{d_k}$
#
# ⟦A score is the dot product of a query and a key of width $d_k$: $x = \sum_{c=1}^{d_k} q_c k_c$.⟧ If the entries are
# independent with mean 0 and variance 1, each of the $d_k$ terms has variance 1, and so the sum has variance $d_k$.
#
# ⟦**Predict first.** With $d_k = 256$: how large is a typical score? How large is the largest weight among ten keys?⟧
#: standard deviation of the scores: 16

# %% tags=["varies", "slide"]
rng = np.random.default_rng(0)
print(" d_k   std of scores   mean largest weight   ... of scores / √d_k")
for d in (4, 64, 256, 1024):
    q, k = (
        backend.to_device(rng.normal(size=shape), device) for shape in [(500, 1, d), (500, 10, d)]
    )
    scores = (q @ k.swapaxes(-1, -2))[:, 0]  # (500, 10): 500 queries, ten keys each
    plain, scaled = (
        float(stable_softmax(s).max(axis=-1).mean()) for s in (scores, scores / d**0.5)
    )
    print(f"{d:4}   {float(scores.std()):13.1f}   {plain:19.2f}   {scaled:18.2f}")

# %% [markdown]
# ⟦Without the scale, the scores of a wide head are so far apart that one key gets nearly all the weight, already at the
# start of training, when the numbers still mean nothing.⟧ Dividing by $\sqrt{d_k}$ brings the variance back to 1 for
# every width. The scale of attention is a temperature $T = \sqrt{d_k}$.
#
# Why is it bad if one weight is nearly 1? Because then almost no gradient flows. The slope of $y_1$ with respect to its
# own score is $y_1 (1 - y_1)$ (notebook 4 derives it), and that goes to zero:

# %%
for width in (1, 4, 16, 64):
    gap = 1.5 * width**0.5  # between two unscaled scores, which have the standard deviation √d_k
    weight = float(stable_softmax(xp.array([gap, 0.0]))[0])
    print(f"d_k = {width:2}: weight {weight:.6f}, slope {weight * (1 - weight):.6f}")

# %% [markdown]
# ## Which axis?
#
# ⟦An array of scores has one row for each query; **each row** must sum to one.⟧ The wrong axis gives numbers between 0
# and 1 as well.

# %%
scores = xp.log(xp.array([[1.0, 2.0, 4.0], [1.0, 1.0, 2.0]]))
for axis in (-1, 0):
    weights, _ = ops.softmax(scores, axis=axis)
    print(f"axis {axis:2}: row sums {weights.sum(axis=-1).round(3)}\n{weights}")

# %% [markdown]
# One question is left: a row in which every score is $-\infty$, because every key is masked. Then $m = -\infty$, and
# $-\infty - (-\infty)$ is `nan`. There is nothing to choose from, and this library returns zeros; see notebook 8.

# %%
print(ops.softmax(xp.array([[0.0, -np.inf, 0.0], [-np.inf, -np.inf, -np.inf]]))[0])

# %% [markdown]
# ## To remember
#
# - The ratio of two weights depends on the difference of their scores; a shift changes nothing.
# - So subtract the maximum of each row: nothing overflows, and the sum is at least 1.
# - Divide by a temperature: a low one picks the maximum, a high one makes the weights equal. Attention uses
#   $\sqrt{d_k}$.

# %% [markdown]
# ## Exercises
#
# Replace `raise NotImplementedError` and run the cell, then the one below it. Your function is called with NumPy arrays
# of several sizes, so write `np`, not `xp`. Stuck? `course.exercise("softmax_forward").hint()`.
#
# ### 3.1 A softmax that cannot overflow

# %%
course.exercise("softmax_forward")


# %%
def softmax_forward(x):
    # your code here
    raise NotImplementedError


# %%
course.check("softmax_forward", softmax_forward)

# %% [markdown]
# ### 3.2 With a pencil
#
# 1. Which scores give the weights $(\frac12, \frac14, \frac14)$? Name two answers.
# 2. At which temperature do the scores $(0, \ln 2)$ get the weights $(\frac19, \frac89)$?
# 3. `stable_softmax` computes $e^{x_i - m}$. How large can the sum of $n$ of them be at most, and for which scores?
#
# Check the first two here:

# %%
scores = xp.array([0.0, 0.0, 0.0])  # your answer to 1
T = 1.0  # your answer to 2
print("wanted [0.5 0.25 0.25], got", stable_softmax(scores))
print("wanted [0.1111 0.8889], got", stable_softmax(xp.log(xp.array([1.0, 2.0])) / T))

# %% [markdown]
# ### 3.3 Which temperature?
#
# A head of width $d_k = 16$ was trained with the scale $1/\sqrt{16}$. Somebody runs it with scores that are not
# divided. Which temperature in `ops.softmax(scores, temperature=...)` fixes it? And which one makes it attend half as
# sharply, so that the logarithm of each ratio of two weights is halved? Write your answer as a sentence, then try it on
# scores of your own.
