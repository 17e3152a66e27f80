# %% [markdown]
# # 4 Softmax backward: from the Jacobian to the VJP
#
# Every entry of a softmax depends on every score, since they share the denominator. So its backward pass is the first
# one that is more than a factor for each entry. Public code gets it wrong more often than any other.
#
# After this hour you can
#
# - derive the Jacobian $\partial y_i / \partial x_j = y_i (\delta_{ij} - y_j)$ and from it
#   $dx_j = y_j (dy_j - \sum_i dy_i y_i)$;
# - read that formula as a sentence;
# - explain why the sum of the outputs is useless as a test loss, and recognise four wrong versions by their numbers.
#
# You need: notebooks 1 to 3.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import minitransformer
from minitransformer import backend, course, ops, verify
from minitransformer.course import MISTAKES
from minitransformer.school.show.plots import matrices

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## One slope at a time
#
# ⟦Our example from notebook 3: $x = (\ln 1, \ln 2, \ln 4)$, so $y = (\frac17, \frac27, \frac47)$.⟧
#
# ⟦**Predict first.** We raise $x_0$ a little. Which weights grow, and which shrink? What do the three changes add up to?⟧
#: signs of the three changes: + - -; their sum: 0

# %% tags=["slide"]
x = xp.log(xp.array([1.0, 2.0, 4.0]))
y, backward = ops.softmax(x)
h = 1e-5
e = xp.array([h, 0.0, 0.0])
change = (ops.softmax(x + e)[0] - ops.softmax(x - e)[0]) / (2 * h)
print("slopes with respect to x_0:   ", change)
print("times 49:                     ", (49 * change).round(6))
print("their sum:                    ", round(float(change.sum()), 6) + 0.0)

# %% [markdown]
# ⟦The weight of $x_0$ grows, the others shrink, and the changes add up to zero: the weights still sum to one.⟧
#
# Now derive it. Write $E = \sum_j e^{x_j}$, so that $y_i = e^{x_i} / E$ and $\partial E / \partial x_j = e^{x_j}$. The
# quotient rule has two cases.
#
# - $i = j$, numerator and denominator change:
#   $\dfrac{\partial y_i}{\partial x_i} = \dfrac{e^{x_i} E - e^{x_i} e^{x_i}}{E^2} = y_i - y_i^2 = y_i (1 - y_i)$
# - $i \ne j$, only the denominator changes:
#   $\dfrac{\partial y_i}{\partial x_j} = \dfrac{0 - e^{x_i} e^{x_j}}{E^2} = -\,y_i y_j$
#
# In one line, with $\delta_{ij} = 1$ for $i = j$ and 0 otherwise:
#
# ⟦$$\boxed{J_{ij} = \frac{\partial y_i}{\partial x_j} = y_i (\delta_{ij} - y_j)}$$⟧
#
# ⟦**Predict first**, on paper: the matrix $49\,J$ for $y = \frac17 (1, 2, 4)$. All its entries are whole numbers.⟧
#: row 0: (6, -2, -4); row 1: (-2, 10, -8); row 2: (-4, -8, 12)

# %% tags=["slide"]
J = y[:, None] * (xp.eye(3) - y)
columns = [(ops.softmax(x + h * e)[0] - ops.softmax(x - h * e)[0]) / (2 * h) for e in xp.eye(3)]
numerical = xp.stack(columns, axis=1)
display(matrices(derived=49 * J, numerical=49 * numerical))

# %% [markdown]
# Three things to see:
#
# - it is **symmetric**: $x_j$ moves $y_i$ as much as $x_i$ moves $y_j$;
# - its **columns sum to zero**: whichever score you raise, the weights still sum to one;
# - its **rows sum to zero**: raising *all* scores by the same amount changes no weight (the shift of notebook 3).
#
# ## From the Jacobian to the VJP
#
# ⟦The upstream gradient is $dy_i = \partial L / \partial y_i$. We must compute $dx_j = \sum_i dy_i J_{ij}$.⟧ Substitute
# $J$ and multiply out:
#
# ⟦$$dx_j = \sum_i dy_i\, y_i (\delta_{ij} - y_j) = dy_j\, y_j - y_j \sum_i dy_i\, y_i$$⟧
#
# ⟦$$\boxed{dx_j = y_j \Big( dy_j - \sum_i dy_i\, y_i \Big)}$$⟧
#
# ⟦**Predict first**, on paper: $dx$ for $dy = (7, 0, 0)$. First the sum, one number. Then the three entries.⟧
#: the sum: 1; dx: (6/7, -2/7, -4/7)

# %% tags=["slide"]
dy = xp.array([7.0, 0.0, 0.0])
mean = (dy * y).sum()
dx = y * (dy - mean)
print("the sum      ", round(float(mean), 6))
print("dx, formula  ", dx, " in sevenths:", (7 * dx).round(6))
print("dx, Jacobian ", dy @ J)
print("dx, library  ", backward(dy))

# %% [markdown]
# ⟦Read it as a sentence. $\sum_i dy_i y_i$ is the **mean of $dy$ under the weights**.⟧ So: *the gradient of a score is
# its weight times the difference between its $dy$ and that mean.* It is positive where $dy$ lies above the mean and
# negative where it lies below.

# %% tags=["slide"]
dy_b = xp.array([3.0, 1.0, -0.5])
mean_b = float((dy_b * y).sum())
figure, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.2))
left.bar(range(3), backend.to_numpy(dy_b), color="lightgrey")
left.axhline(mean_b, color="C3", ls="--")
left.set(title=f"dy, weighted mean {mean_b:.2f} dashed", xticks=range(3))
right.bar(range(3), backend.to_numpy(backward(dy_b)))
right.axhline(0, color="black", lw=0.8)
right.set(title="dx", xticks=range(3))
plt.show()

# %% [markdown]
# ⟦The VJP is also cheap. In attention over 2048 tokens, each head has 2048 rows of 2048 weights:⟧

# %%
T = 2048
print(f"Jacobians of one head: {T} x {T} x {T} = {T**3:,} numbers, {4 * T**3 / 1e9:.0f} GB")
print(f"VJP of one head:       {T} x {T} weights, and one mean for each row")

# %% [markdown]
# In an array of scores each row is a softmax of its own, with its own mean. (Exercise 4.2 asks for the code: which
# axis, and how does the mean broadcast back?) The library's version, on two rows of five, against finite differences:

# %% tags=["varies"]
rows = backend.to_device(np.random.default_rng(0).normal(size=(2, 5)), device)
verify.gradients(ops.softmax, rows)

# %% [markdown]
# A derivation can be judged as well, as you write it on paper: in indices or in matrices, plain or in LaTeX. Each line is
# tried with random numbers. This one goes on from $x$, $dy$ and $y$, and one line is wrong. Find it before you read the
# verdict, mend it, and run the cell again.

# %%
course.check_derivation("derive_softmax", """
dx_j = sum_i dy_i ∂y_i/∂x_j
     = sum_i dy_i y_i (δ_ij + y_j)
     = y_j (dy_j - sum_i dy_i y_i)
""")

# %% [markdown]
# Step through both passes, line by line. Click a number to see where it came from; "predict" covers the next matrix.

# %%
minitransformer.step(ops.softmax, rows, verify=True)

# %% [markdown]
# ## Why a sum of outputs checks nothing
#
# ⟦Here is a tempting test: take $L = \sum_i y_i$ as the loss, so that $dy = (1, 1, 1)$, and compare the gradient with
# finite differences.⟧
#
# ⟦**Predict first.** What is $dx$?⟧
#: dx: (0, 0, 0)

# %% tags=["slide-code"]
ones = xp.ones(3)
print("weighted mean of dy:", round(float((ones * y).sum()), 6))
print("dx:                 ", backward(ones).round(6) + 0.0)

# %% [markdown]
# ⟦The mean of ones is one, and $1 - 1 = 0$. In the Jacobian: $dy\,J$ with ones adds up each column, and the columns sum
# to zero.⟧ The loss is 1 for any scores. So the true gradient is 0, and every wrong backward pass that returns 0 here
# passes the test.
#
# These are mistakes from real code, each put into `ops.softmax` and checked twice:

# %%
batch = backend.to_device(np.random.default_rng(1).normal(size=(3, 4)), device)
wrong = {
    "softmax-no-sum": "y dy",
    "softmax-diagonal-only": "y (1 - y) dy",
    "softmax-plain-mean": "y (dy - mean(dy))",
    "softmax-divided-by-batch": "right one / N",
    "softmax-no-temperature": "forgets 1/T",
    "softmax-expects-cross-entropy": "dy",
    "softmax-sum-over-first-axis": "sum over the batch",
}
print(f"{'mistake':32}{'backward':22}{'dy = 1':9}{'dy random'}")
for name, formula in wrong.items():
    with MISTAKES[name].applied():
        options = {"temperature": 2.0, "intermediates": False}
        with_ones = verify.gradients(ops.softmax, batch, upstream=xp.ones((3, 4)), **options)
        at_random = verify.gradients(ops.softmax, batch, **options)
    caught = ["passes" if report.ok else "caught" for report in (with_ones, at_random)]
    print(f"{name:32}{formula:22}{caught[0]:9}{caught[1]}")

# %% [markdown]
# Three of seven pass the test with ones: the plain mean, because any mean of ones is one, and the two that only scale
# the right answer, because zero times anything is zero. None passes with a random $dy$. LayerNorm has the same trap,
# since its outputs also have a constant sum.
#
# ## Which mistake was it?
#
# Four mistakes, each in the place of the right backward pass:

# %% tags=["slide-given"]
labels = {1: "2e7db9", 2: "286111", 3: "e0c037", 4: "2dd5ac"}
suspects = {number: course.suspect(label) for number, label in labels.items()}
answers = {}
for number, suspect in suspects.items():
    with suspect.applied():
        answers[number] = 7 * ops.softmax(x)[1](dy)
    print(f"{number}:  7 dx = {answers[number].round(4)}")

# %% [markdown]
# ⟦With $y = \frac17(1, 2, 4)$ and $dy = (7, 0, 0)$ the right answer is $dx = \frac17 (6, -2, -4)$. **Predict first:**
# which mistake makes which line? The choices: *no sum*, *diagonal only*, *plain mean*, *takes dy for the wanted
# distribution (y − dy)*.⟧
#
# Write your four answers down. Then ask, and look at the code: right (-) and wrong (+).
#: 1: diagonal only | no sum | plain mean | takes dy for the wanted distribution
#: 2: takes dy for the wanted distribution | diagonal only | no sum | plain mean
#: 3: no sum | diagonal only | plain mean | takes dy for the wanted distribution
#: 4: plain mean | diagonal only | no sum | takes dy for the wanted distribution

# %% tags=["slide"]
for number, suspect in suspects.items():
    print(f"{number}: {suspect.reveal()}")

# %% [markdown]
# One test is free: **does $dx$ sum to zero?** It must, because the rows of $J$ sum to zero. Here are the sums of the
# right answer and of all four:

# %%
for which, answer in {"right": 7 * dx, **answers}.items():
    print(f"{which}: 7 dx sums to {round(float(answer.sum()) + 0.0, 4)}")

# %% [markdown]
# All four fail. (This test does *not* find wrong factors such as $\frac1N$ or a forgotten $\frac1T$. Finite differences
# do.)
#
# ## When nothing flows
#
# ⟦All slopes are $y_i (\delta_{ij} - y_j)$. If one weight is near 1 and the others near 0, every product is near 0.⟧
#
# ⟦**Predict first.** Multiply the scores $(\ln 1, \ln 2, \ln 4)$ by 10. What happens to the largest entry of $J$?⟧
#: it: shrinks | grows | stays

# %% tags=["slide"]
print("scores times   largest weight   largest slope")
for factor in (0, 1, 2, 5, 10, 20):
    weights = ops.softmax(factor * x)[0]
    slopes = weights[:, None] * (xp.eye(3) - weights)
    print(f"{factor:12}   {float(weights.max()):14.6f}   {float(abs(slopes).max()):13.6f}")

# %% [markdown]
# ⟦The softmax *saturates*: one weight is nearly 1, and almost no gradient reaches the scores to change that.⟧ This is why
# attention has the scale $1/\sqrt{d_k}$.
#
# With a temperature, $y = \mathrm{softmax}(x / T)$, the chain rule adds one factor:
# $dx_j = \frac1T\, y_j (dy_j - \sum_i dy_i y_i)$.

# %%
for T in (0.5, 2.0):
    print(f"T = {T}:", verify.gradients(ops.softmax, rows, temperature=T, intermediates=False).ok)

# %% [markdown]
# ## To remember
#
# - $J_{ij} = y_i (\delta_{ij} - y_j)$: symmetric, rows and columns sum to zero.
# - $dx = y \,(dy - \text{mean of } dy \text{ under } y)$, along the row.
# - The sum of the outputs is constant, so a check with $dy = 1$ tests nothing.

# %% [markdown]
# ## Exercises
#
# Derive first, on paper; then type. If your answer is wrong, `course.check` says which term. Try it with a wrong
# answer:

# %%
course.check("softmax_backward", lambda y, dy: y * dy)

# %% [markdown]
# ### 4.1 The Jacobian

# %%
course.exercise("softmax_jacobian")


# %%
def softmax_jacobian(y):
    # your derivation here
    raise NotImplementedError


# %%
course.check("softmax_jacobian", softmax_jacobian)

# %% [markdown]
# ### 4.2 The VJP

# %%
course.exercise("softmax_backward")


# %%
def softmax_backward(y, dy):
    # your derivation here
    raise NotImplementedError


# %%
course.check("softmax_backward", softmax_backward)

# %% [markdown]
# ### 4.3 With a temperature

# %%
course.exercise("softmax_temperature_backward")


# %%
def softmax_temperature_backward(y, dy, temperature):
    # your derivation here
    raise NotImplementedError


# %%
course.check("softmax_temperature_backward", softmax_temperature_backward)

# %% [markdown]
# ### 4.4 With a pencil
#
# $y = \frac15 (1, 1, 3)$ and $dy = (5, 0, -5)$. Compute $dx$. Then find a $dy$ whose entries are not all equal, for
# which $dx_0 = 0$.
