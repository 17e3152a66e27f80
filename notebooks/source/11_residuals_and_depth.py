# %% [markdown]
# # 11 The feed-forward network, residual connections, and gradients in deep stacks
#
# Attention moves information between tokens; the feed-forward network transforms each token on its own; the residual
# connection carries the results upwards and the gradient downwards. The place of the norm decides whether a deep stack
# trains.
#
# You need notebooks 2 (VJPs) and 10 (LayerNorm). At the end you can
#
# * write the backward passes of ReLU, of the feed-forward network and of both kinds of residual block;
# * say why a product of 24 factors $I + J$ behaves so much better than a product of 24 factors $J$;
# * measure the gradient at every depth, and tell a statement about one path from a statement about the sum of all
#   paths.

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, layers, models, ops, training, verify

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
threadpool_limits(1, "blas")  # matrices this small gain nothing from a second thread; see notebook 15
rng = np.random.default_rng(11)
np.set_printoptions(precision=3, suppress=True)
show = backend.to_numpy


def array(x):
    return backend.to_device(np.asarray(x, dtype=np.float64), device)


# %% [markdown]
# ## 11.1 Each token by itself
#
# ⟦$$y = \max(0,\; x W_1 + b_1)\, W_2 + b_2, \qquad W_1: (D, d_{ff}),\quad W_2: (d_{ff}, D)$$⟧
#
# ⟦(Vaswani et al. 2017, section 3.3.) No index of $y$ mixes two tokens.⟧
#
# > ⟦**Predict first.** Swap tokens 0 and 2 of the input. What happens to the output? And what happens if only token 1
# > changes?⟧
#: rows of the output that change with token 1: row 1 | rows 0 and 2 | all | none

# %% tags=["slide"]
x = array(rng.normal(size=(3, 4)))
network = layers.FeedForward(4, 16, rng=rng).to(dtype="float64")
y = network(x)[0]
order = array([[0, 0, 1], [0, 1, 0], [1, 0, 0]])  # a permutation matrix: swaps tokens 0 and 2
print("output\n", show(y), "\noutput for the swapped input\n", show(network(order @ x)[0]), sep="")
changed = x + array([[0.0], [1.0], [0.0]])
print(
    "output rows that change with token 1:", (np.abs(show(network(changed)[0] - y)).max(axis=1) > 1e-9).astype(int)
)

# %% [markdown]
# ⟦The output rows are swapped in the same way, and if only token 1 changes, only row 1 of the output does.⟧
#
# The network looks like a small part of the layer. Count the weights:
#
# > ⟦**Predict first.** With $d_{ff} = 4D$, what share of an encoder layer's weights is in the feed-forward network?⟧
#: share: 2/3

# %% tags=["slide"]
layer = layers.EncoderLayer(64, 4, 256, rng=rng)
counts = {}
for name, parameter in layer.parameters():
    part = name.split(".")[0] + (" norm" if ".norm." in name else "")
    counts[part] = counts.get(part, 0) + parameter.value.size
for part, count in counts.items():
    print(f"{part:22s}{count:7,d}  {count / sum(counts.values()):6.1%}")

# %% [markdown]
# ⟦Attention has four $D \times D$ matrices, the network has two of size $D \times 4D$.⟧ The ratio is 4 to 8, so the
# network has two thirds.
#
# ## 11.2 ReLU and its relatives
#
# ⟦An element-wise function has a diagonal Jacobian, so its VJP is a product: $dx = f'(x) * dy$.⟧
#
# > ⟦**Predict first.** $x = (-2, 0.5, 3)$, $dy = (5, 5, -5)$. What is $dx$ through a ReLU? What decides: the sign of
# > $x$, or of $dy$?⟧
#: dx: (0, 5, -5); the sign that decides is that of: x | dy

# %% tags=["slide"]
relu_y, pullback = ops.relu(array([-2.0, 0.5, 3.0]))
print("y  =", show(relu_y), "\ndx =", show(pullback(array([5.0, 5.0, -5.0]))) + 0.0)

# %% tags=["slide"]
grid = array(np.linspace(-4, 4, 401))
figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
for name, f in {"ReLU": ops.relu, "GELU": ops.gelu, "SiLU": ops.silu}.items():
    values, backward = f(grid)
    axes[0].plot(show(grid), show(values), label=name)
    axes[1].plot(show(grid), show(backward(array(np.ones(401)))), label=name)
axes[0].set_title("f(x)")
axes[1].set_title("f'(x), from the pullback")
axes[0].legend()
plt.show()

# %% [markdown]
# ⟦A ReLU unit whose input is negative for every token gets no gradient at all and never recovers: it is dead.⟧ GELU
# $= x\,\Phi(x)$ lets a little gradient through. By the product rule its derivative has two terms,
# $\Phi(x) + x\,\varphi(x)$. People forget the second term, or the $x$ in it:

# %%
z = array(rng.normal(size=(2, 3)))
for name in ("gelu-density-forgotten", "gelu-density-not-times-x", "relu-never-closes", "relu-masks-by-dy"):
    f = ops.relu if name.startswith("relu") else ops.gelu
    with course.MISTAKES[name].applied():
        print(f"{name:26s} {'accepted' if verify.gradients(f, z).ok else 'rejected'}:", course.MISTAKES[name].sentence)

# %% [markdown]
# ## 11.3 The backward pass reads the forward pass from the last line up
#
# ⟦$$\text{hidden} = x W_1 + b_1, \quad \text{active} = \text{relu}(\text{hidden}), \quad y = \text{active}\, W_2 + b_2$$⟧
#
# ⟦Last line first: $d\text{active} = dy\, W_2^\top$, then $d\text{hidden} = d\text{active} * [\text{hidden} > 0]$, then
# $dx = d\text{hidden}\, W_1^\top$.⟧ With small numbers:

# %%
w1, w2 = array([[1.0, -1.0], [0.0, 2.0]]), array([[3.0], [1.0]])
token, dy = array([[2.0, 1.0]]), array([[1.0]])
hidden = token @ w1
active = hidden * (hidden > 0.0)
print("hidden", show(hidden), "active", show(active), "y", show(active @ w2))

dactive = dy @ w2.T
dhidden = dactive * (hidden > 0.0)
print("dactive", show(dactive), "dhidden", show(dhidden), "dx", show(dhidden @ w1.T))
print("dW2", show(active.T @ dy).ravel(), "dW1", (show(token.T @ dhidden) + 0.0).tolist())

# %% [markdown]
# The second unit has hidden $= -2 + 2 = 0$, exactly at the kink, where the derivative does not exist. The convention is
# 0. A central difference across the kink gives the mean of both slopes, so a fair check must recognise a kink (ours
# does, and reports "kink").

# %% tags=["varies"]
verify.gradients(ops.relu, array([-2.0, 0.0, 3.0]))

# %% [markdown]
# ## 11.4 The residual connection
#
# ⟦A residual connection adds its input to its output, $y = x + f(x)$.⟧ If $J$ is the Jacobian of $f$, that of the block
# is $I + J$, and
#
# ⟦$$dx = \underbrace{dy}_{\text{residual path}} + \underbrace{J^\top dy}_{\text{through } f}$$⟧
#
# > ⟦**Predict first.** All weights of $f$ are zero, as in some initialisations. What is $dx$? What would it be without
# > the residual connection?⟧
#: dx: equals dy | is zero; without the residual connection: is zero | equals dy

# %% tags=["slide"]
block = layers.Residual(layers.FeedForward(4, 16, rng=rng), layers.LayerNorm(4), "pre").to(dtype="float64")
for _, parameter in block.parameters():
    parameter.value[...] = 0.0
dy = array(rng.normal(size=(3, 4)))
print("dy\n", show(dy), "\ndx\n", show(block(x)[1](dy)), sep="")

# %% [markdown]
# ⟦$dx = dy$; without the residual connection it would be 0.⟧ Now a product of many Jacobians. Take 24 random ones, each
# shrinking a vector to about a third, and send a gradient through $J_1 \cdots J_{24}$ and through
# $(I + J_1) \cdots (I + J_{24})$.
#
# > ⟦**Predict first.** What are the orders of magnitude of 24 factors of about ⅓, and of 24 factors of about
# > $\sqrt{1 + ⅑}$?⟧

# %% tags=["slide"]
depth, width = 24, 32
plain = residual = np.ones(width) / np.sqrt(width)
sizes = [(1.0, 1.0)]
for _ in range(depth):
    J = rng.normal(size=(width, width)) / np.sqrt(width) / 3.0
    plain, residual = J.T @ plain, residual + J.T @ residual
    sizes.append((np.linalg.norm(plain), np.linalg.norm(residual)))
print(f"⅓ to the 24th = {(1 / 3) ** 24:.0e}   √(1 + ⅑) to the 24th = {(1 + 1 / 9) ** 12:.1f}")
figure, ax = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
ax.semilogy(sizes, label=["J … J", "(I + J) … (I + J)"])
ax.set(xlabel="layers passed on the way back", ylabel="size of the gradient")
ax.legend()
plt.show()

# %% [markdown]
# ## 11.5 The norm: before or after
#
# ⟦$$\text{post-norm (2017):}\quad y = \text{norm}(x + f(x)) \qquad\qquad \text{pre-norm:}\quad y = x + f(\text{norm}(x))$$⟧
#
# ⟦With pre-norm the residual path goes through no norm at all, from the last layer to the first.⟧ With post-norm it goes
# through every norm on the way, and notebook 10 shows what a norm does to a gradient: it multiplies it by $1/\sigma$.
#
# > ⟦**Predict first.** In post-norm $x$ has just been normalised (variance 1). Suppose $f(x)$ has variance 1 too and is
# > independent. What is $\sigma$ of the sum? With two sub-layers in each layer, by what factor does the gradient along
# > the residual path shrink per layer? After 24 layers?⟧
#: σ of the sum: 1.41; what is left after a layer: 0.5; what is left after 24 layers: 6e-08

# %% tags=["slide"]
print(f"per sub-layer 1/√2 = {2**-0.5:.3f}, per layer {0.5:.3f}, after 24 layers {0.5**24:.0e}")

# %% [markdown]
# ⟦This estimate is for the residual path alone. The gradient *through* $f$ is added to it, and cannot be estimated in one
# line.⟧ So measure three things in real stacks at initialisation: the gradient in a pre-norm stack, in a post-norm
# stack, and in the same post-norm stack along the residual path alone. Build a stack, keep the pullbacks, send a random
# gradient down and record its size after each layer.


# %% tags=["slide"]
def stack_and_input(norm_order, depth=24):
    rng = np.random.default_rng(0)
    stack = layers.Encoder(depth, 32, 4, 128, norm_order=norm_order, final_norm=False, rng=rng).to(dtype="float64")
    return stack, array(rng.normal(size=(8, 32))), array(rng.normal(size=(8, 32)))


def sizes_on_the_way_down(pullbacks, dy):
    sizes = [np.linalg.norm(show(dy))]
    for pullback in reversed(pullbacks):
        dy = pullback(dy)
        sizes.append(np.linalg.norm(show(dy)))
    return np.array(sizes[::-1]) / sizes[0]


def gradient_sizes(norm_order):
    """The gradient's size at the input of each layer and at the top, and the spread of the values there."""
    stack, x, dy = stack_and_input(norm_order)
    pullbacks, spread = [], [show(x).std()]
    for layer in stack.layers:
        x, pullback = layer(x)
        pullbacks.append(pullback)
        spread.append(show(x).std())
    return sizes_on_the_way_down(pullbacks, dy), spread, stack


def residual_path_alone():
    """In post-norm: through the two norms of each layer, and not through its sub-layers."""
    stack, x, dy = stack_and_input("post")
    pullbacks = []
    for layer in stack.layers:
        attended, first = layer.self_attention.norm(x + layer.self_attention.sublayer(x)[0])
        x, second = layer.feed_forward.norm(attended + layer.feed_forward.sublayer(attended)[0])
        pullbacks += [first, second]
    return sizes_on_the_way_down(pullbacks, dy)[::2]


pre, pre_spread, pre_stack = gradient_sizes("pre")
post, post_spread, post_stack = gradient_sizes("post")
residual = residual_path_alone()
figure, axes = plt.subplots(1, 2, figsize=(9, 3.0), layout="constrained")
axes[0].semilogy(pre, "o-", label="pre-norm", markersize=3)
axes[0].semilogy(post, "s-", label="post-norm", markersize=3)
axes[0].semilogy(residual, ":", label="post-norm, residual path alone")
axes[0].set(xlabel="layers below", ylabel="size of the gradient, top = 1", title="backward")
axes[1].plot(pre_spread, "o-", label="pre-norm", markersize=3)
axes[1].plot(post_spread, "s-", label="post-norm", markersize=3)
axes[1].set(xlabel="layers below", ylabel="standard deviation", title="forward", ylim=(0, None))
axes[0].legend()
print(f"at the bottom: pre-norm {pre[0]:.1f}, post-norm {post[0]:.2f}, residual path alone {residual[0]:.0e}")
print(f"residual path alone, per sub-layer: {residual[0] ** (1 / 48):.2f}")

# %% [markdown]
# ⟦The estimate is right about the residual path: it loses a constant factor per sub-layer, a straight line on this scale
# (0.79 instead of 0.71, since these sub-layers add a variance of less than 1).⟧ But the whole gradient does not vanish,
# because most of it comes through the sub-layers. It falls by a factor of ten in the upper half of the post-norm stack
# and then stays about level; in the pre-norm stack it never falls, and grows a little. **A correct argument about one
# path says nothing about the sum.** Measure.
#
# The right picture shows the price of pre-norm: each block adds to the sum and nothing rescales it, so its standard
# deviation grows. Late layers then change it relatively little, and the stack needs one final norm.
#
# **And the parameters?** They learn from the gradient that arrives at their layer:

# %% tags=["slide"]
figure, ax = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
for label, stack, marker in (("pre-norm", pre_stack, "o-"), ("post-norm", post_stack, "s-")):
    norms = [np.linalg.norm(show(layer.feed_forward.sublayer.inner.weight.grad)) for layer in stack.layers]
    ax.semilogy(range(1, 25), norms, marker, label=label, markersize=3)
    print(f"{label:10s} last layer / first layer: {norms[-1] / norms[0]:.1f}")
ax.set(xlabel="layer", ylabel="size of dW_1", title="feed-forward weights")
ax.legend()
plt.show()

# %% [markdown]
# ## 11.6 Does it matter? Train both
#
# ⟦The task needs every layer to pass information up: read six digits, return the first.⟧ 12 layers, Adam, no tricks.
#
# > ⟦**Predict first.** Which stack learns it in 120 steps: pre-norm; post-norm; post-norm with warm-up, where the
# > learning rate rises linearly over the first 60 steps?⟧


# %%
def train(norm_order, warmup, steps=120, rate=2e-3, seed=0):
    rng = np.random.default_rng(seed)
    sizes = {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 12}
    model = models.Classifier(models.ClassifierConfig(10, 10, dropout=0.0, norm_order=norm_order, **sizes), rng)
    optimizer = training.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.0)
    losses = []
    for t in range(1, steps + 1):
        ids = rng.integers(0, 10, (32, 6))
        model.zero_grad()
        loss, backward = model.loss(backend.to_device(ids, device), backend.to_device(ids[:, 0].copy(), device))
        backward()
        optimizer.step(rate * min(1.0, t / warmup))
        losses.append(float(loss))
    return losses


curves = {"pre-norm": train("pre", 1), "post-norm": train("post", 1), "post-norm, warm-up": train("post", 60)}

# %% tags=["varies", "slide"]
figure, ax = plt.subplots(figsize=(6, 3.0), layout="constrained")
for label, losses in curves.items():
    ax.plot(np.convolve(losses, np.ones(5) / 5, mode="valid"), label=label)
    print(f"{label:20s} loss over the last ten steps {np.mean(losses[-10:]):.2f}")
ax.axhline(np.log(10), color="grey", linestyle="--", label="guessing: log 10")
ax.set(xlabel="step", ylabel="cross-entropy (nats)")
ax.legend()
plt.show()

# %% [markdown]
# ⟦Sizes, data and optimiser are the same; only the place of the norm differs, or the 60 smaller steps at the start.⟧
# Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", found this. They explain it by the large
# gradients of the last post-norm layers at initialisation, which we saw above. The reason cannot be that gradients are
# simply too *small*: Adam divides them by their own size.
#
# ## 11.7 Mistakes on the residual path
#
# > ⟦**Predict first.** Somebody forgets the residual path in the backward pass of pre-norm. In shallow models the loss
# > still falls. What happens to the gradient at layer 1 of 24?⟧

# %% tags=["slide"]
with course.MISTAKES["pre-norm-identity-dropped"].applied():
    dropped = gradient_sizes("pre")[0]
print(f"gradient at layer 1: right {pre[0]:.2f}, identity dropped {dropped[0]:.0e}")
block = layers.Residual(layers.FeedForward(4, 16, rng=rng), layers.LayerNorm(4), "pre").to(dtype="float64")
post_block = layers.Residual(layers.FeedForward(4, 16, rng=rng), layers.LayerNorm(4), "post").to(dtype="float64")
for name in (
    "pre-norm-identity-dropped",
    "pre-norm-norm-skipped",
    "pre-norm-identity-through-norm",
    "post-norm-identity-dropped",
    "post-norm-identity-past-norm",
):
    checked = block if name.startswith("pre") else post_block
    with course.MISTAKES[name].applied():
        verdict = "accepted" if verify.gradients(checked, x).ok else "rejected"
    print(f"{verdict}  {course.MISTAKES[name].sentence}")

# %% [markdown]
# ## Exercises
#
# In the residual exercises you get `f` as its pullback, a function from the gradient of its output to the gradient of
# its input.

# %%
course.exercise("relu_backward")


# %%
def relu_backward(x, dy):
    raise NotImplementedError


course.check("relu_backward", relu_backward)

# %%
course.exercise("feed_forward_backward")


# %%
def feed_forward_backward(x, w_1, b_1, w_2, dy):
    raise NotImplementedError


course.check("feed_forward_backward", feed_forward_backward)

# %%
course.exercise("residual_backward")


# %%
def residual_backward(dy, sublayer_backward):
    raise NotImplementedError


course.check("residual_backward", residual_backward)

# %%
course.exercise("pre_norm_backward")


# %%
def pre_norm_backward(dy, sublayer_backward, norm_backward):
    raise NotImplementedError


course.check("pre_norm_backward", pre_norm_backward)
