# %% [markdown]
# # 20 Positions
#
# Attention sees a set. The model must be told where a word stands, and there are many ways to do so: sines, a learned
# table, a bias for each distance, rotations. All of them work on sentences as long as those in training. What happens
# on longer ones?
#
# After this hour you can
#
# - show that sinusoidal positions make every shift a rotation;
# - show that rotary scores depend on distances alone;
# - predict which kinds of positions still work on longer texts, and measure it.
#
# You need: embeddings and positions (12), attention (6).

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, ideas, ops
from minitransformer.core.ops.positions import shift_of_positions
from minitransformer.ideas.after.alibi import paper_slopes
from minitransformer.school.compare import positions

os.environ["MINITRANSFORMER_DEVICE"] = device  # where models put their parameters, and tables of positions
threadpool_limits(1)
np.set_printoptions(precision=3, suppress=True)
plt.rcParams["figure.dpi"] = 80
rng = np.random.default_rng(0)
show = backend.to_numpy


def on_device(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## Without positions
#
# ⟦**Predict first.** Five vectors attend to one another, without a mask. Now exchange the first two. What happens to the
# outputs?⟧
#: the outputs: are exchanged in the same way | stay the same | are all different

# %% tags=["slide"]
x = rng.normal(size=(5, 4))
order = [1, 0, 2, 3, 4]
y, exchanged = (show(ops.attention(z, z, z)[0]) for z in (on_device(x), on_device(x[order])))
print("the same rows, exchanged:", np.allclose(exchanged, y[order]))

# %% [markdown]
# ⟦"Dog bites man" and "man bites dog" give the same vectors.⟧
#
# ## A shift is a linear map
#
# ⟦The paper chose sines and cosines because "for any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function
# of $PE_{pos}$".⟧ Which function? By the addition formulas, with $a = k \cdot \omega$ and rows as in notebook 12:
#
# ⟦$$(\sin(x + a), \cos(x + a)) = (\sin x, \cos x) \begin{pmatrix} \cos a & -\sin a \\ \sin a & \cos a
# \end{pmatrix}$$⟧
#
# Each pair turns by its own angle, whatever $x$ is. All pairs together form a matrix $S(k)$ with blocks on its
# diagonal, and $PE_{pos + k} = PE_{pos}\,S(k)$.
#
# ⟦**Predict first.** On its diagonal $S(k)$ has a rotation by $k\,\omega$ for each frequency $\omega$, from fast to slow.
# Sketch $S(1)$. Then sketch $S(100)$.⟧

# %% tags=["slide"]
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2))
for ax, k in zip(axes, (1, 100), strict=True):
    ax.imshow(shift_of_positions(k, 16), cmap="RdBu", vmin=-1, vmax=1)
    ax.set_title(f"S({k})")
plt.show()

# %%
table = show(ops.sinusoidal_positions(200, 16))
for k in (1, 7, 100):
    error = abs(table[:100] @ shift_of_positions(k, 16) - table[k : 100 + k]).max()
    print(f"k = {k:3d}: PE[pos] S(k) = PE[pos + k] for 100 positions:", error < 1e-12)
print("S(3) S(4) = S(7):", np.allclose(shift_of_positions(3, 16) @ shift_of_positions(4, 16), shift_of_positions(7, 16)))
print("S(7)ᵀ = S(-7):   ", np.allclose(shift_of_positions(7, 16).T, shift_of_positions(-7, 16)))

# %% [markdown]
# Slow pairs hardly turn in one step (the blocks at the lower right are nearly the identity), fast ones turn by a radian.
# So a head can learn $W_Q$ and $W_K$ such that each query points to the key four places before: a rotation by $S(-4)$.
#
# ## Rotary positions: turn the vectors themselves
#
# ⟦If a shift is a rotation, rotate queries and keys by their positions, and add nothing.⟧ In a score
#
# ⟦$$(R_m q) \cdot (R_n k) = q^\top R_m^\top R_n k = q^\top R_{n-m}\, k$$⟧
#
# only the difference of the positions appears.
#
# ⟦**Predict first.** Move both a query and a key by 50 places. How does their score change?⟧
#: the score: stays the same | grows | shrinks

# %% tags=["slide"]
q, k = on_device(rng.normal(size=(1, 8))), on_device(rng.normal(size=(1, 8)))


def score(m, n):
    turned_q = ideas.rotary(q, positions=on_device([m]))[0]
    turned_k = ideas.rotary(k, positions=on_device([n]))[0]
    return float((turned_q @ turned_k.T)[0, 0])


for m, n in ((3, 1), (53, 51), (53, 50)):
    print(f"query at {m:2d}, key at {n:2d}: {score(m, n): .4f}")

# %% [markdown]
# ⟦Drawn with two numbers for each vector: the positions turn both arrows, and the score depends on the angle between them.⟧

# %% tags=["slide"]
two, other = on_device([[1.5, 0.5]]), on_device([[0.8, 1.2]])
figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.8), layout="constrained")
for ax, (m, n) in zip(axes, ((3, 1), (53, 51), (53, 50)), strict=True):
    turned = [show(ideas.rotary(x, positions=on_device([place]))[0])[0] for x, place in ((two, m), (other, n))]
    for (across, up), name, colour in zip(turned, "qk", ("tab:blue", "tab:orange"), strict=True):
        ax.quiver(0, 0, across, up, color=colour, angles="xy", scale_units="xy", scale=1)
        ax.text(1.1 * across, 1.1 * up, name, color=colour)
    ax.set(title=f"q at {m}, k at {n}: q·k = {turned[0] @ turned[1]:.2f}", xticks=[], yticks=[], aspect="equal")
    ax.set(xlim=(-2.0, 2.0), ylim=(-2.0, 2.0))
plt.show()

# %% [markdown]
# ## Biases: add to the scores
#
# ⟦T5 adds a learned number for each distance; far ones share a number. ALiBi adds $-m\,|i - j|$, with a fixed slope $m$ for
# each head.⟧
#
# ⟦**Predict first.** With 4 heads the slopes are $\frac14, \frac1{16}, \frac1{64}, \frac1{256}$. If all scores are otherwise
# equal, which head looks back farthest? At what distance has a weight of the first head fallen to $1/e$?⟧
#: looks back farthest: the last | the first; the distance: 4

# %% tags=["slide"]
bias, _ = ideas.alibi(on_device(paper_slopes(4)), 1, 64)
weights = show(ops.softmax(bias)[0])[:, 0]
plt.figure()
for slope, row in zip(paper_slopes(4), weights, strict=True):
    plt.plot(np.arange(64)[::-1], row, label=f"slope 1/{1 / slope:.0f}")
plt.xticks(range(0, 65, 16))
plt.xlabel("distance")
plt.ylabel("weight")
plt.legend()
plt.show()

# %% [markdown]
# ⟦The first looks back about $1 / m = 4$ places. The last one looks back farthest: it hardly prefers near keys.⟧
#
# ## Trained short, tested long
#
# ⟦A task for positions alone: *which token stood four places before?* The texts in training have 16 random tokens,
# those of the test 64.⟧ There are 16 different tokens, so a guess is right 6% of the time; the first four positions
# have no answer. The cell takes about half a minute. `minitransformer compare positions` does this for all five kinds;
# here are three.
#
# ⟦**Predict first.** For sines, a learned table, and rotations: right up to position 16? Right from 17 to 64? Why?⟧

# %% tags=["varies", "slide"]
kinds = ("sinusoidal", "learned", "rotary")
right = {}
for kind in kinds:
    model, loss = positions.trained(kind, 16, 400)
    right[kind] = positions.accuracy(model, 16)
    spans = [np.mean(right[kind][max(4, i) : i + 16]) for i in range(0, 64, 16)]
    print(f"{kind:10} loss {loss:.3f}, right in 1-16, 17-32, 33-48, 49-64: {np.round(spans, 2)}")

# %% tags=["slide"]
plt.figure()
for kind in kinds:
    plt.plot(range(5, 65), right[kind][4:], label=kind)
plt.axvline(16.5, color="gray", linestyle=":")
plt.xticks([1, 16, 32, 48, 64])
plt.xlabel("position")
plt.ylabel("right")
plt.legend()
plt.show()

# %% [markdown]
# - **Learned:** the rows after 16 were never trained. They are still random.
# - **Sinusoidal:** the map $S(-4)$ holds everywhere. But nothing in training asked for it! Between 1 and 16 the slow pairs
#   hardly move, so the model may use them for anything; beyond 16 they take values that it has never seen.
# - **Rotary:** the score depends only on the distance. It works beyond 16 as well, but gets worse: more and more keys
#   stand at distances that training never showed, and they take their share of the softmax.
#
# ⟦What *can* be represented is not what is *learned*.⟧

# %% [markdown]
# ## Exercises

# %%
course.exercise("rotary_forward")


# %%
def rotary_forward(x, base):
    raise NotImplementedError


course.check("rotary_forward", rotary_forward)

# %%
course.exercise("rotary_backward")


# %%
def rotary_backward(dy, base):
    raise NotImplementedError


course.check("rotary_backward", rotary_backward)

# %% [markdown]
# **3.** Run `minitransformer compare positions --plot positions.png`. ALiBi is the worst at 16. Why is this task hard for
# it? (All keys of a head have the same slope: can a score be higher at distance 4 than at 0 and at 8?)
#
# **4 (discussion).** Some models have no positions at all and only a causal mask. How could the second layer know where it
# stands? (What does a head that attends to all keys equally write, if one token occurs only at the start?)
