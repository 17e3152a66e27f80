# %% [markdown]
# # 22 Experts
#
# Two thirds of an encoder layer's parameters sit in its feed-forward network, and each token uses all of them. A mixture of
# experts has many such networks, and a router that sends each token to a few.
#
# After this hour you can
#
# - compute gates by hand, and say which experts get a gradient;
# - count parameters and work separately;
# - say why experts need a loss that balances them, and derive its gradient.
#
# You need: the feed-forward network (11), softmax backward (4).

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, ideas, ops
from minitransformer.ideas.after.experts import chosen_experts
from minitransformer.school.show import schematics
from minitransformer.school.show.plots import round_ticks
from minitransformer.training import AdamW

os.environ["MINITRANSFORMER_DEVICE"] = device  # where layers put their parameters
threadpool_limits(1)
np.set_printoptions(precision=3, suppress=True)
plt.rcParams["figure.dpi"] = 80
show = backend.to_numpy


def on_device(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## Gates
#
# ⟦The router is a linear map: a score for each expert.⟧ The $k$ largest are chosen, and a softmax over *these* gives their
# weights.
#
# ⟦**Predict first**, without a calculator: the gates of the scores $(\ln 1, \ln 3, \ln 2, \ln 1)$ with $k = 2$.⟧
#: gates: (0, 3/5, 2/5, 0)

# %% tags=["slide-code"]
scores = on_device(np.log([[1.0, 3.0, 2.0, 1.0]]))
gates, backward = ideas.top_k_gates(scores, 2)
print("gates     ", show(gates)[0])
print("of softmax", show(ops.softmax(scores)[0])[0])

# %% [markdown]
# ⟦$\frac35$ and $\frac25$: as if the other experts did not exist.⟧ The others do no work at all.
#
# ⟦**Predict first.** The gates are $(0, \frac35, \frac25, 0)$ and their gradient is $(1, 0, 0, 0)$: the loss would fall
# if the first gate were smaller. What is the gradient of the scores? And for $(0, 1, 0, 0)$?⟧
#: for (1, 0, 0, 0): (0, 0, 0, 0); for (0, 1, 0, 0): (0, 0.24, -0.24, 0)

# %% tags=["slide"]
for dgates in ([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]):
    print(f"dgates {np.array(dgates)}  ->  dscores {show(backward(on_device([dgates])))[0] + 0.0}")

# %% [markdown]
# ⟦The first expert was not chosen: its gate is 0, and a slightly larger score does not change that.⟧ *The choice has no
# gradient.* Among the chosen it is the softmax of notebook 4: $\frac35 \cdot \frac25 = 0.24$, and the other gets the
# opposite.
#
# ⟦**Predict first.** What is the gradient of the scores with $k = 1$?⟧
#: the gradient: (0, 0, 0, 0)

# %% tags=["slide-code"]
_, backward = ideas.top_k_gates(scores, 1)
print(show(backward(on_device([[0.0, 1.0, 0.0, 0.0]])))[0] + 0.0)

# %% [markdown]
# ⟦Nothing: the one gate is always 1. (The Switch Transformer, which has $k = 1$, therefore uses the gate of the softmax over
# *all* experts.)⟧
#
# ## Parameters and work
#
# ⟦**Predict first.** A feed-forward network of width 64 and inner width 256 is replaced by 8 experts of that size, 2 for
# each token. How many times the parameters? How many times the work?⟧
#: parameters, times: 8; work, times: 2

# %% tags=["slide"]
dense = ideas.GatedFeedForward(64, 256, bias=False)
mixture = ideas.MixtureOfExperts(64, 256, n_experts=8, k=2)
sizes = [sum(p.value.size for _, p in layer.parameters()) for layer in (dense, mixture)]
work = [3 * 64 * 256, 2 * 3 * 64 * 256 + 64 * 8]
print(f"parameters {sizes[0]:,} and {sizes[1]:,}: {sizes[1] / sizes[0]:.2f} times")
print(f"multiplications per token {work[0]:,} and {work[1]:,}: {work[1] / work[0]:.2f} times")

# %% [markdown]
# ⟦A gated network has three matrices, so one has $3 \cdot 64 \cdot 256 = 49{,}152$ parameters.⟧ Mixtral has 8 experts in each layer, 47 billion parameters, and does the work of a model of 13 billion.
#
# ## An expert without a token
#
# ⟦**Predict first.** Four tokens, six experts, $k = 1$. At least how many experts get no gradient?⟧
#: at least: 2

# %% tags=["slide"]
rng = np.random.default_rng(1)
layer = ideas.MixtureOfExperts(4, 8, n_experts=6, k=1, rng=rng)
x = on_device(rng.normal(size=(4, 4)).astype(np.float32))
y, backward = layer(x)
backward(on_device(np.ones(y.shape, np.float32)))
for i, expert in enumerate(layer.experts):
    size = max(abs(p.grad).max() for _, p in expert.parameters())
    print(f"expert {i}: {'learns' if size else 'no gradient'}")

# %% tags=["slide"]
routes = {}
for k in (1, 2):
    gates = show(ideas.top_k_gates(layer.router(x)[0], k)[0])
    routes[f"k = {k}"] = ([f"token {i}" for i in range(4)], [f"expert {i}" for i in range(6)], gates)
schematics.links(routes, 5.2)

# %% [markdown]
# ⟦A line is as thick as its gate; an expert without a line stays white.⟧ An expert that gets no token does not learn.
# With $k \ge 2$ the router also raises the scores of experts that already help (with $k = 1$ these gates give it no
# gradient): the rich get richer.
#
# ## Balance
#
# ⟦Of $N$ tokens, $f_i$ is the share that chose expert $i$, and $P_i$ the mean of its probability in the softmax over all $E$.⟧
# Fedus et al. add a small multiple of
#
# ⟦$$L = E \sum_i f_i P_i$$⟧
#
# to the loss. $f$ is counted and has no gradient. $P$ has one.
#
# ⟦**Predict first.** $k = 1$, four experts. What is $L$ if all tokens go to one expert, with probability 1? If the shares
# are equal?⟧
#: all tokens to one expert: 4; equal shares: 1

# %% tags=["slide-code"]
one = np.array([[50.0, 0.0, 0.0, 0.0]] * 8)
equal = 50.0 * np.eye(4)[[0, 1, 2, 3] * 2]
for name, logits in (("all to one", one), ("equal", equal)):
    print(f"{name:10} {float(ideas.load_balance(on_device(logits), 1)[0]):.2f}")

# %% [markdown]
# ⟦$E = 4$ and $1$.⟧ (With $k$ experts for each token the $f_i$ sum to $k$, and equal shares give $L = k$.) The gradient pushes *every* token away from an expert in proportion to how many it has.
#
# ## Do they divide the work?
#
# ⟦Four groups of points, each with its own linear map.⟧ Four experts, two for each token, and a router that begins with
# a preference for the first two.


# %%
def learn(balance, steps=400, seed=0):
    rng = np.random.default_rng(seed)
    centres, maps = 3.0 * rng.normal(size=(4, 8)), rng.normal(size=(4, 8, 8)) / 3.0
    layer = ideas.MixtureOfExperts(8, 8, n_experts=4, k=2, rng=rng)
    layer.router.weight.value[:, :2] += 0.3 * on_device(centres.sum(axis=0)[:, None].astype(np.float32))
    optimizer = AdamW(layer.parameters(), 1e-2, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        group = rng.integers(0, 4, 128)
        x = centres[group] + rng.normal(size=(128, 8))
        wanted = np.einsum("nd,nde->ne", x, maps[group])
        x, wanted = on_device(x.astype(np.float32)), on_device(wanted.astype(np.float32))
        layer.zero_grad()
        y, backward = layer(x)
        _, balance_backward = layer.balance(x)
        losses.append(float(((y - wanted) ** 2).mean()))
        backward(2.0 * (y - wanted) / y.size)
        balance_backward(balance)
        optimizer.step()
    chosen = show(chosen_experts(layer.router(x)[0], 2))
    return losses, chosen.mean(axis=0), [chosen[group == i].mean(axis=0) for i in range(4)]


# %% [markdown]
# ⟦**Predict first.** Without the balancing loss: which shares do you expect for the four experts? They sum to $k = 2$.⟧

# %% tags=["varies", "slide"]
curves = {}
for balance in (0.0, 1.0):
    curves[balance], shares, by_group = learn(balance)
    print(f"balance {balance}: loss {np.mean(curves[balance][-50:]):.3f}, shares {shares}")
    for i, row in enumerate(by_group):
        print(f"    group {i}: {row}")

# %% tags=["slide"]
plt.figure()
for balance, losses in curves.items():
    plt.semilogy(np.convolve(losses, np.ones(20) / 20, "valid"), label=f"balance {balance}")
plt.xlabel("step")
plt.ylabel("loss")
round_ticks(plt.gca().yaxis)
plt.legend()
plt.show()

# %% [markdown]
# ⟦Each row is a group, each number the share of its tokens that went to an expert.⟧ Without the balancing loss three of
# the four groups crowd onto the two experts that were preferred at the start, and the other two serve one group. With
# it a crowded group moves to another pair, the shares come nearer to one half, and the loss is lower: the work is
# divided better. The shares are not equal, since the loss of the task also trains the router. The factor is large here,
# because the task is small; in large models it is 0.01.

# %% [markdown]
# ## Exercises

# %%
course.exercise("top_k_gates")


# %%
def top_k_gates(logits, k):
    raise NotImplementedError


course.check("top_k_gates", top_k_gates)

# %%
course.exercise("mixture_backward")


# %%
def mixture_backward(gates, outputs, dy):
    raise NotImplementedError


course.check("mixture_backward", mixture_backward)

# %% [markdown]
# **3.** On paper: derive the gradient of $L$ with respect to the scores of one token. (Start from $dP_i = E f_i$.)
#
# **4 (discussion).** A batch is spread over 8 machines, one expert on each. What does an unequal share cost there, besides
# learning?
