# %% [markdown]
# # 2 Vector-Jacobian products of matmul and broadcasting
#
# A Transformer consists of matrix products, and of adding small things to large ones. If you can go backward through
# these two, you can do most of it.
#
# After this hour you can
#
# - say what a vector-Jacobian product (VJP) is, and why nobody stores the Jacobian;
# - derive $dA = dC\,B^\top$ and $dB = A^\top dC$ from the indices, in one line;
# - go backward through a broadcast, a sum, a mean, and a value that is used twice.
#
# You need: notebook 1; indices of matrices.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

from minitransformer import backend, course, ops, verify
from minitransformer.course import MISTAKES
from minitransformer.school.show.plots import matrices

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## The Jacobian, and why we do not want it
#
# ⟦If $y$ depends on $x$, the matrix of all partial derivatives is the Jacobian, $J_{ij} = \partial y_i / \partial x_j$.⟧
# The chain rule says how the loss depends on $x$:
#
# ⟦$$dx_j = \frac{\partial L}{\partial x_j} = \sum_i \frac{\partial L}{\partial y_i} \frac{\partial y_i}{\partial x_j} = \sum_i dy_i\, J_{ij},
# \qquad dx = dy\, J$$⟧
#
# A backward pass computes just this: a vector times the Jacobian. For one row $y = xW$ the Jacobian is
# easy to find: $y_i = \sum_j x_j W_{ji}$, so $J_{ij} = W_{ji}$ and $J = W^\top$.

# %% tags=["slide"]
W = xp.array([[1.0, 0.0, 2.0], [3.0, -1.0, 0.0]])  # (2, 3): from two numbers to three
x = xp.array([1.0, 2.0])
h = 1e-5
columns = [((x + h * e) @ W - (x - h * e) @ W) / (2 * h) for e in xp.eye(2)]
J = xp.stack(columns, axis=1)  # a column for each x_j
display(matrices(W=W, J=J))

# %% [markdown]
# ⟦Now a real layer: 512 numbers to 512 numbers, for each of 100 tokens.⟧
#
# ⟦**Predict first.** How many entries does the Jacobian of the whole layer have, from all inputs to all outputs? How
# many of them are not zero? How much memory does it take in float32?⟧
#: entries: 2621440000; not zero: 26214400; memory in GB: 10.5

# %% tags=["slide"]
n = 100 * 512
print(f"entries {n * n:,}, which is {4 * n * n / 1e9:.1f} GB; not zero: {100 * 512 * 512:,}")
print(f"x, W and y together: {(2 * n + 512 * 512) * 4 / 1e6:.1f} MB")

# %% [markdown]
# ⟦Ten gigabytes for one layer, 99 % of it zeros, and the rest 100 copies of $W^\top$.⟧ So we never form $J$. We look for
# a formula that gives $dy\,J$ directly: the **vector-Jacobian product**, VJP. A function that computes it is called a
# backward pass, or **pullback**.
#
# ## The product of two matrices
#
# ⟦$$C = AB, \qquad C_{ij} = \sum_m A_{im} B_{mj}$$⟧
#
# ⟦Take one entry of $A$, say $A_{im}$. In which entries of $C$ does it occur?⟧

# %% tags=["slide"]
A = xp.array([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])  # (2, 3)
B = xp.array([[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0], [1.0, 1.0, 0.0, -1.0]])  # (3, 4)
moved = A.copy()
moved[0, 2] += 1.0
display(matrices(A=A, B=B, C=A @ B, change_of_C=moved @ B - A @ B))

# %% [markdown]
# ⟦We raised $A_{02}$ by 1, and only row 0 of $C$ moved, by row 2 of $B$.⟧ In general $A_{im}$ moves row $i$ of $C$ by row
# $m$ of $B$: $\partial C_{ij} / \partial A_{im} = B_{mj}$. Every entry that moved contributes its upstream gradient:
#
# ⟦$$dA_{im} = \sum_j dC_{ij}\, B_{mj} \qquad\Longrightarrow\qquad \boxed{dA = dC\, B^\top}$$⟧
#
# The sum runs over $j$, the *second* index of both $dC$ and $B$. A matrix product sums over the *first* index of its
# right factor, hence the transpose. In the same way $B_{mj}$ moves column $j$ of $C$ by column $m$ of $A$:
#
# ⟦$$dB_{mj} = \sum_i A_{im}\, dC_{ij} \qquad\Longrightarrow\qquad \boxed{dB = A^\top dC}$$⟧
#
# ⟦$$A = \begin{pmatrix}1&0&2\\0&1&-1\end{pmatrix}, \qquad
# B = \begin{pmatrix}1&0&3&0\\0&2&0&1\\1&1&0&-1\end{pmatrix}$$
#
# **Predict first**, with a pencil: $dA$ and $dB$ if $dC$ has only two entries that are not zero, $dC_{00} = 1$ and
# $dC_{13} = 2$.⟧
#: dA, row 0: (1, 0, 1); dA, row 1: (0, 2, -2)
#: dB, row 0: (1, 0, 0, 0); dB, row 1: (0, 0, 0, 2); dB, row 2: (2, 0, 0, -2)

# %% tags=["slide"]
dC = xp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
dA = dC @ B.T
dB = A.T @ dC
display(matrices(dC=dC, dA=dA, dB=dB))

# %% [markdown]
# ⟦Row 0 of $dA$ is column 0 of $B$; row 1 is twice column 3 of $B$.⟧ Column 0 of $dB$ is row 0 of $A$; column 3 is twice
# row 1 of $A$. A one in $dC$ copies a row of one factor into the other's gradient.
#
# As a function of two arguments, and checked:


# %% tags=["varies"]
def matmul(a, b):
    c = a @ b

    def backward(dc):
        da = dc @ b.T
        db = a.T @ dc
        return da, db

    return c, backward


verify.gradients(matmul, A, B)

# %% [markdown]
# ### Shapes help, but they do not prove
#
# ⟦$dA$ must have the shape of $A$, (2, 3).⟧ Only one product of $dC$, (2, 4), and $B$, (3, 4), has that shape. So shapes
# remind you of the formula. They cannot tell a transpose from a reshape:

# %% tags=["slide-given"]
display(matrices(B=B, transposed=B.T, reshaped=B.reshape(4, 3)))

# %% [markdown]
# ⟦Both are (4, 3), and only one is right. **Predict first:** will the check notice?⟧
#: the check notices: yes

# %% tags=["slide"]
mistake = MISTAKES["linear-weight-reshaped"]
print(mistake.sentence)
with mistake.applied():
    report = verify.gradients(ops.linear, A, B)
for row in report.of_kind("input"):
    verdict = (
        "ok"
        if row.ok
        else f"WRONG: at {row.where} by hand {row.hand:.4f}, numerically {row.numerical:.4f}"
    )
    print(f"d{row.name:7} {row.shape}  {verdict}")

# %% [markdown]
# ## Shared weights: the gradients add up
#
# ⟦In a layer, $x$ has a row for each token, and every row is multiplied by the same $W$.⟧ So $dW = x^\top dy$ hides a sum
# over the tokens:
#
# ⟦$$dW_{ij} = \sum_n x_{ni}\, dy_{nj}$$⟧
#
# It is the sum of one outer product for each token:

# %% tags=["slide"]
x = xp.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])  # 3 tokens
dy = xp.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
parts = {f"token_{n}": xp.outer(x[n], dy[n]) for n in range(3)}
display(matrices(**parts, dW=x.T @ dy))

# %% [markdown]
# ⟦**Predict first.** Someone divides $dW$ by the number of tokens, "because we average over the batch". Right or wrong?⟧
#: it is: wrong | right

# %% tags=["slide"]
mistake = MISTAKES["linear-dweight-mean"]
with mistake.applied():
    row = verify.gradients(ops.linear, x, W)["weight"]
ratio = row.numerical / row.hand
print(f"by hand {row.hand:.4f}, numerically {row.numerical:.4f}, ratio {ratio:.1f}")
print(mistake.sentence)

# %% [markdown]
# Text comes in batches, $x$ of shape (B, T, in). For a linear map nothing changes: a batch of B sequences of T tokens
# is just B·T tokens. Flatten, multiply, reshape back.
#
# ## Broadcasting: a copy forward is a sum backward
#
# ⟦$y = x + b$ with $x$ of shape (3, 2) and $b$ of shape (2,): NumPy adds a copy of $b$ to each row.⟧ Move $b_0$, and
# column 0 of $y$ moves in *every* row. Each of these entries contributes:
#
# ⟦$$db_j = \sum_n dy_{nj}$$⟧

# %% tags=["slide"]
dy = xp.array([[1.0, 0.0], [2.0, 1.0], [0.0, -3.0]])
display(matrices(dy=dy, db=dy.sum(axis=0)))

# %% [markdown]
# ⟦The rule is the same for copies along any axis. **Predict first:** $x$ has shape (3, 2). Over which axis does the
# gradient of $c$ in $x + c$ sum if $c$ has shape (3, 1)? And that of a scalar $s$ in $x + s$?⟧


# %% tags=["varies"]
def add_three(x, b, c, s):
    y = x + b + c + s

    def backward(dy):
        dx = dy
        db = dy.sum(axis=0)  # (2,): a new axis in front was summed away
        dc = dy.sum(axis=1, keepdims=True)  # (3, 1): a stretched axis stays, with length 1
        ds = dy.sum()
        return dx, db, dc, ds

    return y, backward


verify.gradients(add_three, x, xp.array([1.0, 2.0]), xp.array([[1.0], [2.0], [3.0]]), xp.array(5.0))

# %% [markdown]
# ⟦Multiplication works the same way: first the product rule for each entry, then the sum over the copies.⟧ For a gain $g$
# of shape (2,), as in LayerNorm, $y = x\,g$ gives $dx = dy\,g$ and $dg_j = \sum_n dy_{nj} x_{nj}$.


# %%
def gain(x, g):
    y = x * g

    def backward(dy):
        dx = dy * g
        dg = (dy * x).sum(axis=0)
        return dx, dg

    return y, backward


print(verify.gradients(gain, x, xp.array([2.0, 3.0])).ok)

# %% [markdown]
# ## A sum forward is a copy backward
#
# ⟦Now the other way round. In $y_n = \sum_j x_{nj}$ every $x_{nj}$ moves $y_n$ by the same amount, so each gets a copy
# of $dy_n$.⟧ The mean copies $dy_n / m$. Each operation has a partner in the backward pass:
#
# | forward | backward |
# |---|---|
# | copy (broadcast, use twice) | sum |
# | sum | copy |
# | mean over $m$ | copy, divided by $m$ |
# | transpose, reshape | the opposite transpose, reshape |
# | times $W$ from the right | times $W^\top$ from the right |
# | select a row | put the gradient into that row, zeros elsewhere |


# %%
def mean_of_rows(x):
    y = x.mean(axis=1)

    def backward(dy):
        dx = xp.broadcast_to(dy[:, None], x.shape) / x.shape[1]
        return dx

    return y, backward


print(mean_of_rows(x)[1](xp.array([2.0, 4.0, 6.0])))
print(verify.gradients(mean_of_rows, x).ok)

# %% [markdown]
# ## Used twice
#
# ⟦In self-attention the same $x$ becomes queries, keys and values.⟧ Using a value twice is a copy, so its gradients **add
# up**. The smallest example is $y = x \cdot x$, a product of two factors that happen to be the same.


# %%
def times(a, b):
    return a * b, lambda dy: (dy * b, dy * a)


def square(x):
    y, times_backward = times(x, x)

    def backward(dy):
        dx_as_first, dx_as_second = times_backward(dy)
        return dx_as_first + dx_as_second

    return y, backward


three = xp.array([3.0])
print("dx =", square(three)[1](xp.array([1.0])), " and the rule for x² says 2·3")

# %% [markdown]
# ⟦**Predict first.** In $y = x \cdot x$ at $x = 3$ both factors send a gradient to $x$, 6 together. What comes out if the
# second gradient replaces the first, `dx = dx_as_second`?⟧
#: dx: 3

# %% tags=["slide-code"]
_, times_backward = times(three, three)
dx_as_first, dx_as_second = times_backward(xp.array([1.0]))
print("dx =", dx_as_second)

# %% [markdown]
# ⟦Half of it. An overwritten gradient is one of the most frequent mistakes in public code, since nothing crashes.⟧
#
# ## A chain
#
# ⟦Two layers with a ReLU between them. The backward pass runs in the opposite order: each pullback takes what the
# pullback of the next op returns.⟧


# %%
def network(x, w1, b1, w2, b2):
    hidden, first_backward = ops.linear(x, w1, b1)
    active, relu_backward = ops.relu(hidden)
    y, second_backward = ops.linear(active, w2, b2)

    def backward(dy):
        dactive, dw2, db2 = second_backward(dy)
        dhidden = relu_backward(dactive)
        dx, dw1, db1 = first_backward(dhidden)
        return dx, dw1, db1, dw2, db2

    return y, backward


rng = np.random.default_rng(0)
shapes = [(3, 2), (2, 5), (5,), (5, 4), (4,)]
arguments = [backend.to_device(rng.normal(size=shape), device) for shape in shapes]
report = verify.gradients(network, *arguments)
for row in report.rows:
    if row.name.count(".") == 0 or row.name.startswith("network"):
        print(f"{row.name:15} {row.kind:13} {row.shape!s:7} {'ok' if row.ok else 'WRONG'}")

# %% [markdown]
# The check covers the intermediates too, because `hidden` has a partner `dhidden`: **the gradient of a name is always
# called d + name.** Keep to this rule, and the checker can name the wrong line.
#
# ## To remember
#
# - A backward pass is a vector times a Jacobian that is never formed.
# - $C = AB$: $dA = dC\,B^\top$, $dB = A^\top dC$.
# - Copy forward, sum backward; sum forward, copy backward.
# - Used twice: add the gradients.

# %% [markdown]
# ## Exercises
#
# Derive first, with indices on paper; then type. Your function is called with NumPy arrays of several sizes, so write
# `np`, not `xp`. Stuck? `course.exercise("matmul_backward").hint()`.
#
# ### 2.1 Both factors of a product

# %%
course.exercise("matmul_backward")


# %%
def matmul_backward(a, b, dc):
    # your derivation here
    raise NotImplementedError


# %%
course.check("matmul_backward", matmul_backward)

# %% [markdown]
# ### 2.2 A layer on a whole batch

# %%
course.exercise("linear_backward")


# %%
def linear_backward(x, w, dy):
    # your derivation here
    raise NotImplementedError


# %%
course.check("linear_backward", linear_backward)

# %% [markdown]
# ### 2.3 A gain and a bias

# %%
course.exercise("broadcast_backward")


# %%
def broadcast_backward(x, gain, dy):
    # your derivation here
    raise NotImplementedError


# %%
course.check("broadcast_backward", broadcast_backward)

# %% [markdown]
# ### 2.4 With a pencil
#
# $G = X X^\top$ with $X$ of shape (n, m): every row against every row, as in attention without weights. Show that
# $dX = (dG + dG^\top) X$. (Which rule of this notebook makes the sum?)
