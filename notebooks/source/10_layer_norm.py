# %% [markdown]
# # 10 LayerNorm and its three terms
#
# The forward pass is four lines. Most people get its backward pass wrong on paper, because each $x_j$ affects the
# output along three paths. We take it apart until every term has a meaning.
#
# You need notebooks 1 and 2 (finite differences, VJPs) and 4 (the VJP of softmax). At the end you can
#
# * derive the three terms and say what each one removes;
# * say which directions of the input a LayerNorm cannot see, and why its gradient is perpendicular to them;
# * name the mistakes that a check with equal gains, or with an upstream gradient of ones, lets through.

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, ops, step, verify

os.environ["MINITRANSFORMER_DEVICE"] = device
rng = np.random.default_rng(10)
np.set_printoptions(precision=4, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


# %% [markdown]
# ## 10.1 One row by hand
#
# ⟦For a row $x$ of $D$ numbers (Ba et al. 2016):⟧
#
# ⟦$$\mu = \tfrac1D \sum_i x_i, \qquad \sigma^2 = \tfrac1D \sum_i (x_i - \mu)^2, \qquad
# n_i = \frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad y_i = \gamma_i n_i + \beta_i$$⟧
#
# > ⟦**Predict first.** $x = (1, 1, 3, 3)$. Mean, variance, $n$? (Take $\varepsilon$ as zero.)⟧
#: mean: 2; variance: 1; n: (-1, -1, 1, 1)

# %% tags=["slide-code"]
x = array([[1.0, 1.0, 3.0, 3.0]])
ones, zeros = array(np.ones(4)), array(np.zeros(4))
n, backward = ops.layer_norm(x, ones, zeros, eps=1e-12)
print("n =", show(n)[0])

# %% [markdown]
# ⟦The variance divides by $D$, not by $D-1$: it describes this row, it does not estimate a population.⟧ NumPy's `var`
# does the same unless told otherwise; other libraries' `std` may divide by $D-1$.

# %%
row = show(x)[0]
for divisor, ddof in (("D", 0), ("D - 1", 1)):
    print(f"variance divided by {divisor:5s} = {row.var(ddof=ddof):.4f}, n = {(row - row.mean()) / row.std(ddof=ddof)}")

# %% [markdown]
# ## 10.2 What it cannot see
#
# > ⟦**Predict first.** LayerNorm turns $x = (1, 1, 3, 3)$ into $(-1, -1, 1, 1)$. What does it return for $x + 5$, for
# > $3x$, for $-x$? And for a row of **two** numbers, say $(0.1, 0.7)$, or $(2, 200)$?⟧
#: x + 5: (-1, -1, 1, 1); 3x: (-1, -1, 1, 1); -x: (1, 1, -1, -1)
#: (0.1, 0.7): (-1, 1); (2, 200): (-1, 1)

# %% tags=["slide"]
for name, moved in {"x + 5": x + 5.0, "3 x": 3.0 * x, "-x": -x}.items():
    print(f"{name:6s}", show(ops.layer_norm(moved, ones, zeros, eps=1e-12)[0])[0])
for pair in ([0.1, 0.7], [2.0, 200.0]):
    two = ops.layer_norm(array([pair]), array(np.ones(2)), array(np.zeros(2)), eps=1e-12)[0]
    print(pair, "->", show(two)[0])

# %% [markdown]
# ⟦A shift of the whole row and a stretch away from its mean do not change the output.⟧ A row of two numbers has no
# degrees of freedom but shift and stretch, so its output is always $(-1, 1)$ or $(1, -1)$.
#
# This tells us two things about the backward pass before we derive it. If moving $x$ along a direction $u$ does not
# change $y$, the Jacobian sends $u$ to zero. For LayerNorm $u$ may be $(1, \dots, 1)$ or $x - \mu$, which is $n$ up to
# scale.
#
# > ⟦**Predict first.** $D = 6$, $\gamma = 1$. What is the rank of the $6 \times 6$ Jacobian of LayerNorm?⟧
#: rank: 4

# %% tags=["slide"]
D = 6
x6 = array(rng.normal(size=(1, D)))
n6, backward6 = ops.layer_norm(x6, array(np.ones(D)), array(np.zeros(D)), eps=1e-12)
jacobian = np.concatenate([show(backward6(array(np.eye(D)[i : i + 1]))[0]) for i in range(D)])  # row i: ∂n_i/∂x_j
print("rank", np.linalg.matrix_rank(jacobian, tol=1e-6))
print("J · 1 is zero:", np.allclose(jacobian @ np.ones(D), 0.0, atol=1e-9))
print("J · n is zero:", np.allclose(jacobian @ show(n6)[0], 0.0, atol=1e-9))

figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.8), layout="constrained")
limit = np.abs(jacobian).max()
axes[0].imshow(jacobian, cmap="RdBu", vmin=-limit, vmax=limit)
axes[0].set(title="Jacobian ∂n_i/∂x_j", xlabel="j", ylabel="i")
axes[1].bar(range(1, D + 1), np.linalg.svd(jacobian, compute_uv=False))
axes[1].set(title="its singular values", xlabel="number")
plt.show()

# %% [markdown]
# ⟦Four equal singular values and two zeros: **a projection, times $1/\sigma$.** It removes two directions and scales the
# other $D - 2$ by the same factor.⟧ The whole backward pass is in this picture. Next, the formula.
#
# ## 10.3 Three paths
#
# ⟦Write $s = 1/\sqrt{\sigma^2 + \varepsilon}$. How does a small change of $x_j$ affect $n_i$?⟧
#
# 1. *directly*, if $i = j$: $\;s\,\delta_{ij}$;
# 2. *through the mean*, which every $x_j$ moves by $1/D$: $\;-s/D$;
# 3. *through the variance*: $\partial\sigma^2/\partial x_j = \tfrac2D (x_j - \mu)$ and
#    $\partial s/\partial\sigma^2 = -\tfrac12 s^3$,
#    so $(x_i - \mu)\,\partial s/\partial x_j = -s\, n_i n_j / D$.
#
# (In 3 the mean inside the variance changes as well, but that contributes $\sum_i (x_i - \mu) = 0$.) Together
#
# ⟦$$\frac{\partial n_i}{\partial x_j} = s\Big(\delta_{ij} - \frac1D - \frac{n_i n_j}{D}\Big)$$⟧
#
# and with $dn = \gamma * dy$, summing $dn_i\,\partial n_i/\partial x_j$ over $i$:
#
# ⟦$$dx_j = s\Big(\underbrace{dn_j}_{\text{direct}} - \underbrace{\operatorname{mean}_i(dn_i)}_{\text{shift}}
# - \underbrace{n_j \operatorname{mean}_i(dn_i\, n_i)}_{\text{stretch}}\Big)$$⟧
#
# > ⟦**Predict first.** $n = (-1, -1, 1, 1)$, $s = 1$, $dn = (1, 0, 0, 0)$. Compute the three terms and $dx$ on paper.⟧
#: dx: (1/2, -1/2, 0, 0)

# %% tags=["slide"]
dn = np.array([1.0, 0.0, 0.0, 0.0])
n_row = show(n)[0]
shift = np.full(4, dn.mean())
stretch = n_row * (dn * n_row).mean()
print("direct  ", dn, "\nshift   ", shift, "\nstretch ", stretch, "\ndx      ", (dn - shift - stretch).round(6) + 0.0)
dx, dgamma, dbeta = backward(array([dn]))
print("library ", show(dx)[0].round(6) + 0.0)

# %% [markdown]
# ⟦$dx = (½, -½, 0, 0)$: raise the first entry and lower the second.⟧ This direction contains neither a shift nor a
# stretch. Is it perpendicular to both, as it must be? And do finite differences agree?

# %%
for name, direction in {"1": np.ones(4), "n": n_row}.items():
    print(f"dx is perpendicular to {name}:", np.isclose(show(dx)[0] @ direction, 0.0, atol=1e-9))
h = 1e-5
for j in range(4):
    step_j = array(h * np.eye(4)[j : j + 1])
    up, down = (show(ops.layer_norm(x + sign * step_j, ones, zeros, eps=1e-12)[0])[0, 0] for sign in (1.0, -1.0))
    print(f"(n_0(x + h e_{j}) - n_0(x - h e_{j})) / 2h = {round((up - down) / (2 * h), 4) + 0.0:7.4f}")

# %% [markdown]
# ## 10.4 Leave a term out
#
# ⟦Each of these mistakes was seen in public code.⟧ First those that forget a path. The last column is the largest
# error of $dx$, $|\text{hand} - \text{numerical}| / (1 + |\text{numerical}|)$.

# %% tags=["slide"]
x = array(rng.normal(size=(3, 5)))
gamma, beta = array(1.0 + 0.5 * rng.normal(size=5)), array(rng.normal(size=5))
for name in (
    "layer-norm-no-shift",
    "layer-norm-no-stretch",
    "layer-norm-statistics-constant",
    "layer-norm-gamma-forgotten",
    "layer-norm-variance-for-deviation",
):
    with course.MISTAKES[name].applied():
        report = verify.gradients(ops.layer_norm, x, gamma, beta)
    print(f"{name:34s} {'accepted' if report.ok else 'rejected'}   {report['x'].error:.2f}")

# %% [markdown]
# ## 10.5 The mistake that hides behind $\gamma = 1$
#
# ⟦$\gamma$ belongs *inside* the means: $dn = \gamma * dy$ first, means afterwards.⟧ With $\gamma$ outside,
#
# ⟦$$dx_j \overset{?}{=} s\,\gamma_j \big(dy_j - \operatorname{mean}(dy) - n_j \operatorname{mean}(dy * n)\big)$$⟧
#
# looks just as plausible, and $\gamma$ *starts* at 1 in every library.
#
# > ⟦**Predict first.** You check this wrong backward twice: with $\gamma = (1, 1, 1, 1, 1)$, and with unequal entries.
# > Which check rejects it?⟧
#
# `verify.gradients` knows this trap and draws a constant $\gamma$ anew. So here $\gamma$ is kept from it: `of_x` leaves
# only $x$ to check.
#: rejected with: unequal gains | gains of 1 | both | neither

# %% tags=["slide"]
def of_x(norm, gain):
    """The norm as a function of x alone, with this gain."""

    def f(x):
        y, norm_backward = norm(x, gain, beta)
        return y, lambda dy: norm_backward(dy)[0]

    return f


outside = course.MISTAKES["layer-norm-gamma-outside-means"]
with outside.applied():
    for label, gain in (
        ("all gains 1  ", array(np.ones(5))),
        ("all gains 2  ", array(2 * np.ones(5))),
        ("unequal gains", gamma),
    ):
        print(label, "accepted" if verify.gradients(of_x(ops.layer_norm, gain), x).ok else "rejected")

# %% [markdown]
# ⟦A fresh model passes and a trained one fails: the check was run when the mistake could not be seen.⟧
#
# ## 10.6 The check that sees nothing
#
# ⟦A popular test takes the loss $L = \sum_i y_i$, so the upstream gradient is all ones.⟧
#
# > ⟦**Predict first.** With $\gamma = 1$, what is the true $dx$ for $dy = (1, \dots, 1)$? Which wrong backward passes
# > agree?⟧
#: every entry of dx: 0


# %% tags=["slide"]
def lazy_layer_norm(x, gamma, beta):
    """LayerNorm with a backward pass that does nothing at all."""
    y, right_backward = ops.layer_norm(x, gamma, beta)

    def backward(dy):
        _, dgamma, dbeta = right_backward(dy)
        dx = 0.0 * x
        return dx, dgamma, dbeta

    return y, backward


ones5 = array(np.ones(5))
true_dx = show(ops.layer_norm(x, ones5, beta)[1](array(np.ones((3, 5))))[0])
print("largest |dx|:", np.abs(true_dx).max().round(9))
for label, upstream in (("upstream of ones  ", array(np.ones((3, 5)))), ("random upstream   ", None)):
    verdict = verify.gradients(of_x(lazy_layer_norm, ones5), x, upstream=upstream).ok
    print(label, "a backward of zeros is", "accepted" if verdict else "rejected")

# %% [markdown]
# ⟦The outputs of a row sum to a constant, so the gradient of their sum is zero.⟧ (The same held for softmax in notebook
# 4.)
#
# ## 10.7 Wrong together
#
# ⟦Some mistakes are made in forward *and* backward. Then the gradient is right, but for another function.⟧

# %%
for name in ("layer-norm-d-minus-1-throughout", "layer-norm-eps-outside-root-throughout"):
    variant = course.MISTAKES[name]
    right_value = show(ops.layer_norm(0.01 * x, gamma, beta)[0])[0, 0]
    with variant.applied():
        accepted = verify.gradients(ops.layer_norm, x, gamma, beta).ok
        wrong_value = show(ops.layer_norm(0.01 * x, gamma, beta)[0])[0, 0]
    print(
        variant.sentence, f"\n    gradients accepted: {accepted}; first value {right_value:.4f} became {wrong_value:.4f}"
    )

# %% [markdown]
# Only values from elsewhere can find these: a calculation by hand as in 10.1, or the paper's formula.
#
# ## 10.8 What ε is for
#
# ⟦The factor $s = 1/\sqrt{\sigma^2 + \varepsilon}$ multiplies the gradient.⟧
#
# > ⟦**Predict first.** Shrink a row by 10. What happens to $dx$, for the same $dy$? And if you shrink it by $10^6$?⟧
#: shrunk by 10, dx is larger by the factor: 10

# %% tags=["slide"]
scales = 10.0 ** np.arange(-6, 3.01, 0.25)
direction = array(rng.normal(size=(1, 8)))
upstream = array(rng.normal(size=(1, 8)))
figure, ax = plt.subplots(figsize=(5.4, 3.0), layout="constrained")
for eps in (1e-5, 1e-12):
    sizes = []
    for scale in scales:
        pullback = ops.layer_norm(float(scale) * direction, array(np.ones(8)), array(np.zeros(8)), eps=eps)[1]
        sizes.append(np.linalg.norm(show(pullback(upstream)[0])))
    ax.loglog(scales, sizes, label=f"ε = {eps:g}")
    print(
        f"ε = {eps:g}: |dx| at scale 1 is {sizes[24]:.2f}, at scale 0.1 {sizes[20]:.2f}, at scale 1e-6 {sizes[0]:.3g}"
    )
ax.set(xlabel="size of x", ylabel="size of dx", title="a smaller row gets a larger gradient")
ax.legend()
plt.show()

# %% [markdown]
# ⟦A row ten times smaller gets a gradient ten times larger, since the same change of $x$ then changes $n$ ten times as
# much.⟧ ε limits the factor to $1/\sqrt\varepsilon$. This is also why weights before a norm must not shrink to almost
# zero.
#
# ## 10.9 The gradients of γ and β are sums over all rows
#
# ⟦γ and β are shared by every token of every sequence: $d\gamma = \sum dy * n$, $d\beta = \sum dy$, summed over **all**
# axes except the last.⟧

# %%
x3 = array(rng.normal(size=(2, 3, 5)))  # batch, tokens, width
dy3 = array(rng.normal(size=(2, 3, 5)))
y3, backward3 = ops.layer_norm(x3, gamma, beta)
_, dgamma, dbeta = backward3(dy3)
print("dgamma", dgamma.shape, "dbeta", dbeta.shape)
print("dbeta is the sum over both axes:", np.allclose(show(dbeta), show(dy3).sum(axis=(0, 1))))
print("summing one axis leaves", show(dy3).sum(axis=0).shape, "which is not", beta.shape)

# %% [markdown]
# ## 10.10 RMSNorm: one path fewer
#
# ⟦RMSNorm (Zhang and Sennrich 2019) does not subtract the mean: $n = x / \sqrt{\operatorname{mean}(x^2) + \varepsilon}$.⟧
#
# > ⟦**Predict first.** Which of the three terms remain: direct, shift, stretch? What is the rank of its Jacobian for $D = 6$?⟧
#: rank: 5

# %% tags=["slide"]
_, rms_backward = ops.rms_norm(x6, array(np.ones(D)), eps=1e-12)
rms_jacobian = np.concatenate([show(rms_backward(array(np.eye(D)[i : i + 1]))[0]) for i in range(D)])
print("rank", np.linalg.matrix_rank(rms_jacobian, tol=1e-6))
print("J · 1 is zero:", np.allclose(rms_jacobian @ np.ones(D), 0.0, atol=1e-9))
print("J · x is zero:", np.allclose(rms_jacobian @ show(x6)[0], 0.0, atol=1e-9))

# %% [markdown]
# ⟦The shift is gone; the direct term and the stretch remain: $dx_j = s\,(dn_j - n_j \operatorname{mean}_i(dn_i n_i))$.⟧
#
# To see every intermediate of the backward pass, step through it: `shift` and `stretch` have lines of their own.

# %% tags=["varies"]
step(ops.layer_norm, array([[1.0, 1.0, 3.0, 3.0], [0.0, 2.0, 1.0, 5.0]]), array([1.0, 2.0, 1.0, 0.5]), zeros)

# %% [markdown]
# ## Exercises
#
# `course.check` draws rows of different lengths, unequal gains, and arrays with two and three axes.

# %%
course.exercise("layer_norm_forward")


# %%
def layer_norm_forward(x, gamma, beta, eps):
    raise NotImplementedError


course.check("layer_norm_forward", layer_norm_forward)

# %%
course.exercise("layer_norm_backward")


# %%
def layer_norm_backward(x, gamma, eps, dy):
    raise NotImplementedError


course.check("layer_norm_backward", layer_norm_backward)

# %%
course.exercise("rms_norm_backward")


# %%
def rms_norm_backward(x, gamma, eps, dy):
    raise NotImplementedError


course.check("rms_norm_backward", rms_norm_backward)

# %% [markdown]
# **Another way to write it (paper).** Show that $dx = s\,(I - \tfrac1D 1 1^\top - \tfrac1D n n^\top)\,dn$, and that the
# bracket is a projection when $\varepsilon = 0$: applying it twice equals applying it once. Where do you need
# $\operatorname{mean}(n) = 0$ and $\operatorname{mean}(n^2) = 1$?
