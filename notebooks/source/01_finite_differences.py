# %% [markdown]
# # 1 Finite differences, and what a check can miss
#
# In this course you derive gradients by hand. How do you know that a derivation is right? Ask a second witness that
# knows nothing about your derivation: change an input a little, and see how the output changes.
#
# After this hour you can
#
# - differentiate any function numerically, and choose the step with reasons;
# - check a backward pass of your own against it;
# - name five ways in which such a check passes although the backward pass is wrong.
#
# You need: the derivative, the chain rule, NumPy arrays.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, ops, verify
from minitransformer.course import MISTAKES

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80


def verdict(report):
    return "right" if report.ok else "wrong"


# %% [markdown]
# ## One number
#
# ⟦Take $f(x) = x^3$ at $x = 2$. You know the answer: $f'(2) = 3 \cdot 2^2 = 12$.⟧ Two ways to get near it without knowing
# the rule:
#
# ⟦$$\text{one-sided: } \frac{f(x+h) - f(x)}{h} \qquad\qquad \text{central: } \frac{f(x+h) - f(x-h)}{2h}$$⟧
#
# ⟦**Predict first.** With $h = 0.1$, how far from 12 is each? Which one gains more when $h$ becomes ten times smaller?⟧
#: one-sided, with h = 0.1: 0.61; central, with h = 0.1: 0.01
#: gains more: central | one-sided


# %% tags=["slide"]
def f(x):
    return x**3


print("     h   one-sided  (error)    central  (error)")
for h in (0.1, 0.01, 0.001):
    one_sided = (f(2 + h) - f(2)) / h
    central = (f(2 + h) - f(2 - h)) / (2 * h)
    print(f"{h:6}   {one_sided:.6f}  ({one_sided - 12:.6f})  {central:.6f}  ({central - 12:.6f})")

# %% [markdown]
# ⟦Taylor's series tells why. Around $x$,
#
# $$f(x \pm h) = f(x) \pm h f'(x) + \tfrac{h^2}{2} f''(x) \pm \tfrac{h^3}{6} f'''(x) + \dots$$⟧
#
# In the one-sided quotient the term with $f''$ stays, $\tfrac{h}{2} f''$. In the central one it cancels, because it has
# the same sign on both sides; what remains is $\tfrac{h^2}{6} f'''$.
#
# Here $f'' = 12$ and $f''' = 6$, so the errors are about $6h$ and exactly $h^2$, as the table says. A step ten times
# smaller makes the one-sided error 10 times smaller and the central error 100 times. From now on we use the central
# quotient.

# %% [markdown]
# ## How small should $h$ be?
#
# ⟦**Predict first.** If a smaller step is better, why not $h = 10^{-16}$?⟧

# %% tags=["slide-code"]
for h in (1e-5, 1e-8, 1e-12, 1e-14, 1e-16):
    print(f"h = {h:.0e}:  {(f(2 + h) - f(2 - h)) / (2 * h):.6f}")

# %% [markdown]
# ⟦The computer keeps about 16 digits of $f(2+h)$ and of $f(2-h)$.⟧ The smaller $h$ is, the more of these digits agree.
# The subtraction cancels them, and only the last few digits remain, with their rounding errors. At $h = 10^{-16}$ even
# $2 + h$ is rounded to 2, and nothing remains. Rounding adds an error of about $\varepsilon |f| / h$: it *grows* as $h$
# shrinks. The two errors pull in opposite directions:

# %% tags=["slide"]
steps = 10.0 ** np.arange(-15, 0.01, 0.25)


def errors(dtype):
    x = np.array(2, dtype)
    h = steps.astype(dtype)
    return abs((f(x + h) - f(x - h)) / (2 * h) - 12)


plt.figure(figsize=(5, 3.2))
plt.loglog(steps, errors(np.float64) + 1e-17, ".-", label="float64")
plt.loglog(steps, errors(np.float32) + 1e-17, ".-", label="float32")
plt.loglog(steps, steps**2, "k--", lw=1, label="$h^2$, as Taylor says")
plt.ylim(1e-13, 1e2)
plt.xlabel("step $h$")
plt.ylabel("error of the central difference")
plt.legend()
plt.show()

# %% [markdown]
# ⟦The total error is smallest where both errors are about equal: $h^2 \approx \varepsilon / h$, so
# $h \approx \sqrt[3]{\varepsilon}$:⟧
#
# ⟦| | $\varepsilon$ | $h \approx \sqrt[3]{\varepsilon}$ | error $\approx h^2$ |
# |---|---|---|---|
# | float64 | 2e-16 | 6e-6 | 4e-11 |
# | float32 | 1e-7 | 5e-3 | 2e-5 |⟧
#
# This gives two habits: **train in float32, check in float64**, and use $h = 10^{-5}$.

# %% [markdown]
# ## Many numbers in, many numbers out
#
# ⟦A layer turns an array $x$ into an array $y$.⟧ The layer is part of a network that ends in one number, the loss $L$.
# The rest of the network tells the layer only one thing: **the upstream gradient** $dy_i = \partial L / \partial y_i$.
# The layer's job in the backward pass is to turn $dy$ into $dx_j = \partial L / \partial x_j$.
#
# To check a layer on its own we invent the rest of the network. The simplest loss with a given upstream gradient is
#
# ⟦$$L = \sum_i dy_i \, y_i , \qquad \text{so}\qquad
# dx_j \approx \sum_i dy_i \, \frac{y_i(x + h e_j) - y_i(x - h e_j)}{2h}$$⟧
#
# where $e_j$ is 1 at index $j$ and 0 elsewhere. In code:


# %%
def numerical_gradient(f, x, dy, h=1e-5):
    """dL/dx for L = sum(dy * f(x)), one entry of x at a time."""
    dx = xp.zeros_like(x)
    for j in np.ndindex(x.shape):
        e = xp.zeros_like(x)
        e[j] = h
        dx[j] = (dy * (f(x + e) - f(x - e))).sum() / (2 * h)
    return dx


# %% [markdown]
# All code of this course has one shape: **a forward pass returns its own backward pass.** Try it on $y = x^2$, whose
# backward pass is $dx = 2 x \, dy$.


# %% tags=["slide-given-code"]
def square(x):
    y = x**2

    def backward(dy):
        dx = 2 * x * dy
        return dx

    return y, backward


x = xp.array([1.0, 2.0, 3.0])
dy = xp.array([1.0, 0.0, -1.0])
y, backward = square(x)
print("by hand:    ", backward(dy))
print("numerically:", numerical_gradient(lambda x: square(x)[0], x, dy))

# %% [markdown]
# ⟦**Predict first.** In $dx$ by hand, where does the 0 come from, and where the minus sign?⟧
#
# Then see what other upstream gradients give:

# %% tags=["slide-code"]
for changed in ([1.0, 0.0, -1.0], [1.0, 1.0, -1.0], [1.0, 0.0, 1.0]):
    print("dy", changed, " dx", backward(xp.array(changed)))

# %% [markdown]
# ⟦Both come from `dy`: here the loss does not depend on $y_2$, and it falls when $y_3$ grows.⟧ A backward pass always
# carries the upstream gradient along.
#
# From here on `verify.gradients` does this for us. It draws a random `dy`, checks every entry, and reports the worst
# one.

# %% tags=["varies"]
verify.gradients(square, x)


# %% [markdown]
# Now a very common mistake: the factor 2 is missing.


# %% tags=["varies"]
def careless_square(x):
    y = x**2

    def backward(dy):
        dx = x * dy
        return dx

    return y, backward


verify.gradients(careless_square, x)

# %% [markdown]
# "by hand" is half of "numerically". The ratio of the two numbers is often the quickest hint to a missing factor.
#
# For an array of a million entries, one at a time is too slow. Then take a random *direction* $u$ of length 1 and
# compare one number, the slope of $L$ along $u$, which must be $\sum_j dx_j u_j$. A wrong gradient passes only if its
# error happens to be perpendicular to $u$.

# %% tags=["varies"]
big = backend.to_device(np.random.default_rng(1).normal(size=(1000, 1000)), device)
for function in (square, careless_square):
    row = verify.gradients(function, big)["x"]
    numbers = f"by hand {row.hand:.6f}, numerically {row.numerical:.6f}"
    print(f"{function.__name__:16} {numbers}: {verdict(row)}")

# %% [markdown]
# ## What a check can miss
#
# ⟦A check that passes proves little until you know what it would have rejected.⟧ Here are five checks that accept
# something wrong. All five were found in public code.
#
# ### 1. An upstream gradient of ones
#
# ⟦People like to take "the sum of the outputs" as the loss; then every $dy_i$ is 1.⟧ Softmax turns scores into weights
# that sum to one. Here is one whose backward pass returns nothing but zeros:


# %% tags=["slide-given-code"]
def lazy_softmax(x):
    y, _ = ops.softmax(x)
    return y, lambda dy: 0.0 * dy


x = xp.array([[1.0, 2.0, 4.0]])
report = verify.gradients(lazy_softmax, x, upstream=xp.ones((1, 3)))
print("upstream of ones:  ", verdict(report))

# %% [markdown]
# ⟦**Predict first.** Why does it pass? Will it pass with a random upstream gradient?⟧
#: passes with a random upstream gradient: no

# %% tags=["slide-code"]
print("random upstream:   ", verdict(verify.gradients(lazy_softmax, x)))
print("outputs sum to     ", float(ops.softmax(x)[0].sum()))

# %% [markdown]
# ⟦The sum of the outputs is 1 whatever $x$ is, so its true gradient is zero, and a backward pass that does nothing
# agrees.⟧ **Draw the upstream gradient at random.** (Notebook 4 returns to this.)
#
# ### 2. Equal sizes, and symmetric matrices
#
# ⟦For $y = xW$ the backward pass is $dx = dy\,W^\top$. Forget the transpose:⟧


# %% tags=["slide"]
def product_without_transpose(x, w):
    y = x @ w

    def backward(dy):
        dx = dy @ w  # should be w.T
        dw = x.T @ dy
        return dx, dw

    return y, backward


x = xp.array([[1.0, 2.0], [3.0, 5.0]])
symmetric = xp.array([[2.0, 1.0], [1.0, 3.0]])
ordinary = xp.array([[2.0, 1.0], [0.0, 3.0]])
for name, w in {"symmetric": symmetric, "ordinary": ordinary}.items():
    print(f"{name} W:", verdict(verify.gradients(product_without_transpose, x, w)))

# %% [markdown]
# And with $W$ of shape (2, 3) it would not even run. **Let all sizes differ, and let nothing be symmetric.**
#
# ### 3. Small numbers and a generous tolerance
#
# The project keeps over 200 *wrong variants* of its own code, each a mistake that people make. This one belongs to
# attention:

# %%
mistake = MISTAKES["attention-dk-reshaped"]
((old, new),) = mistake.edits
print(mistake.sentence, "\n\nright:", old, "\nwrong:", new)

# %% [markdown]
# We put it into the library for a moment and check attention twice: with inputs of ordinary size, then with small
# inputs ("weights start small, after all") and a tolerance of $10^{-4}$, as many tests do.

# %% tags=["slide"]
rng = np.random.default_rng(0)
q, k, v = (backend.to_device(rng.normal(size=shape), device) for shape in [(3, 2), (5, 2), (5, 4)])
with mistake.applied():
    ordinary = verify.gradients(ops.attention, q, k, v)["k"]
    small = verify.gradients(ops.attention, 0.01 * q, 0.01 * k, 0.01 * v, atol=1e-4)["k"]
for name, row in {"ordinary": ordinary, "small": small}.items():
    print(f"{name:9} by hand {row.hand:9.6f}, numerically {row.numerical:9.6f}: {verdict(row)}")

# %% [markdown]
# ⟦Both numbers of the second line are tiny, so they "agree" to four decimals although they have nothing in common. **Use
# inputs of ordinary size and a tight tolerance.**⟧ The tolerance needs an absolute part only because some true gradients
# are exactly zero.
#
# ### 4. A branch that the point never visits
#
# ⟦ReLU is $y = \max(x, 0)$; its slope is 1 where $x > 0$ and 0 elsewhere. In this variant the gate never closes:⟧

# %% tags=["slide"]
mistake = MISTAKES["relu-never-closes"]
print(mistake.sentence)
with mistake.applied():
    for x in (xp.array([1.0, 2.0, 3.0]), xp.array([1.0, -2.0, 3.0])):
        print(x, verdict(verify.gradients(ops.relu, x)))

# %% [markdown]
# **Choose points on every side of every branch.** And what about $x = 0$, exactly on the edge? There the central
# difference gives $\frac12$, the slope of neither side. The derivative does not exist, and any slope between 0 and 1 is
# as good as another. The checker compares the slopes on the left and on the right and reports a kink:

# %% tags=["varies"]
print(verify.gradients(ops.relu, xp.array([1.0, -2.0, 0.0])))

# %% [markdown]
# ### 5. Forward and backward wrong together
#
# ⟦Attention divides its scores by $\sqrt{d_k}$, the root of the width. This variant takes the length instead:⟧

# %% tags=["slide"]
mistake = MISTAKES["attention-scaled-by-length"]
print(mistake.sentence)
right_output = ops.attention(q, k, v)[0]
with mistake.applied():
    print("\ngradients:", verdict(verify.gradients(ops.attention, q, k, v)))
    difference = abs(ops.attention(q, k, v)[0] - right_output)
print("outputs differ by up to", round(float(difference.max()), 2))

# %% [markdown]
# A finite difference compares the backward pass with **the forward pass that you wrote**. It says "these two belong
# together", never "this is attention". For that you need numbers from elsewhere: a formula on paper, a published
# example, another library.

# %% [markdown]
# ## To remember
#
# ⟦| the check passes wrongly because of | so |
# |---|---|
# | an upstream gradient of ones | draw it at random |
# | equal sizes, symmetric matrices | let all sizes differ |
# | small numbers, a generous tolerance | ordinary numbers, float64, $h = 10^{-5}$ |
# | a branch that is never taken | points on every side |
# | forward and backward wrong together | values from an independent source |⟧
#
# ⟦And: **check the check.** Break your code on purpose and see the test fail.⟧

# %% [markdown]
# ## Exercises
#
# Replace `raise NotImplementedError` and run the cell, then the one below it. Your function is called with NumPy arrays
# of several sizes, so write `np`, not `xp`. Stuck? `course.exercise("finite_difference").hint()`.
#
# ### 1.1 The second witness

# %%
course.exercise("finite_difference")


# %%
def finite_difference(f, x, h):
    # your code here
    raise NotImplementedError


# %%
course.check("finite_difference", finite_difference)

# %% [markdown]
# ### 1.2 Deceive the check
#
# Change one line of this backward pass so that it is wrong, and yet the check at $x = (1, -1)$ says "right". Then
# choose a better point.


# %%
def cube(x):
    y = x**3

    def backward(dy):
        dx = 3 * x**2 * dy  # change this line
        return dx

    return y, backward


for point in (xp.array([1.0, -1.0]), xp.array([2.0, 0.5])):
    print(point, verdict(verify.gradients(cube, point)))

# %% [markdown]
# ### 1.3 With a pencil
#
# 1. Compute the one-sided and the central difference quotient of $f(x) = x^2$ at any $x$. How large is the error of
#    each? Why?
# 2. Which step would you take for the *one-sided* quotient in float64, where the errors are about $h$ and
#    $\varepsilon / h$?
# 3. $y = xW$ with $x$ of shape (4, 4) and $W$ of shape (4, 4). Name three wrong backward passes whose results have the
#    right shapes.
