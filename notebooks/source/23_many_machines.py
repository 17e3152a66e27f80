# %% [markdown]
# # 23 Many machines
#
# Several machines can train one model together. They exchange arrays: one sends its copy to all, or all add up what
# they have. These exchanges are called collectives. Each of them is an op, `(y, backward)` like softmax, and its
# backward pass is again a collective. This notebook derives which one, and builds the most important collective by
# hand, the sum around a ring.
#
# A rank is one of the machines, or processes. Here the ranks are threads of one process, so there is nothing to install.
# The same code runs on processes; [docs/parallel.md](../docs/parallel.md) shows how.
#
# You need notebooks 2 (vector-Jacobian products) and 7 (attention, backward). At the end you can
#
# * write a collective as a matrix, and its pullback as the transpose;
# * sum arrays around a ring, and say how many bytes each rank sends;
# * cut a network in two, and put the right collectives at the cuts;
# * estimate what a sum over a thousand machines costs.

# %%
device = "numpy"  # on a GPU: "cupy"

import time

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, layers, parallel, plots
from minitransformer.run.machines.parallel.ring import Ring
from minitransformer.school.show import schematics
from minitransformer.school.show.plots import round_ticks

threadpool_limits(1, "blas")
rng = np.random.default_rng(19)
np.set_printoptions(precision=2, suppress=True)
show = backend.to_numpy


def on_device(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## 23.1 Collectives are matrices
#
# ⟦Stack the numbers of three ranks: $x = (x_0, x_1, x_2)$.⟧ A collective makes $y$ from it, by copying and
# adding. So it is linear, $y = A x$, and notebook 2 says what its pullback is: $dx = A^\top dy$.
#
# `parallel.in_threads(3, work)` calls `work(group)` on three threads. `group.rank` is 0, 1 or 2. To see $A$, we give the
# ranks each unit vector in turn.
#
# > ⟦**Predict first.** *Broadcast* copies rank 0's number to all ranks. Write down its matrix, then the transpose. What does
# > a collective with this matrix do?⟧


# %% tags=["slide"]
def matrix(collective, transposed=False):
    """The matrix of a collective on three ranks with a number each; or that of its pullback."""
    columns = []
    for unit in np.eye(3):

        def work(group, unit=unit):
            y, backward = collective(on_device(unit[group.rank : group.rank + 1]), group)
            return backward(on_device(unit[group.rank : group.rank + 1])) if transposed else y

        columns.append(np.concatenate([show(y) for y in parallel.in_threads(3, work)]))
    return np.stack(columns, axis=1)


plots.matrices(
    broadcast=matrix(parallel.broadcast),
    its_pullback=matrix(parallel.broadcast, transposed=True),
    reduce=matrix(parallel.reduce),
)

# %% [markdown]
# ⟦The pullback of broadcast is *reduce*, the sum on rank 0: what was copied to three places gets the sum of three gradients.⟧
# You have seen this rule since notebook 1, there within one machine.
#
# **Copies.** Often all ranks hold one value, such as a weight, and compute the same with it. Then the copies are not three
# numbers but one, whose gradient counts once. The sum on all ranks, *all-reduce*, turns parts into such a value. Its
# pullback sends nothing: each rank has $dy$ already. ⟦The partner of all-reduce, *identity*, hands one value to ranks that
# compute different things with it. Forward it does nothing.⟧
#
# > ⟦**Predict first.** What must `identity` do in backward, and why would a beginner forget it?⟧


# %% tags=["slide"]
def copies(group):
    x = on_device(np.full(2, group.rank + 1.0))
    total, all_reduce_backward = parallel.all_reduce(x, group)
    same, identity_backward = parallel.identity(on_device(np.ones(2)), group)
    return show(total), show(all_reduce_backward(on_device(np.ones(2)))), show(identity_backward(x))


for rank, (total, dx, dsame) in enumerate(parallel.in_threads(3, copies)):
    print(f"rank {rank}: all_reduce gives {total}, backward {dx}; identity's backward {dsame}")

# %% [markdown]
# ⟦It must add up the gradients of all ranks: 1 + 2 + 3.⟧ Forward it does nothing, so it is easy to forget. Without it
# the loss still falls, only more slowly.
#
# ## 23.2 A ring, by hand
#
# How do four ranks add up long arrays? One could send everything to rank 0: then rank 0 receives three arrays while the
# others wait. Better:
#
# ⟦Four ranks in a circle cut their arrays into four stretches. In each step every rank sends *one* to
# the next rank, which adds it to its own.⟧ After three steps each rank has one stretch of the whole sum.
#
# > ⟦**Predict first.** In step 0, rank $r$ sends stretch $(r - 1) \bmod 4$. Which one must it send in step 1? After three
# > steps, which stretch is complete on rank 0?⟧
#: in step 1, rank 0 sends stretch: 2; complete on rank 0, stretch: 0

# %%
n = 4
parts = on_device(np.tile(10.0 ** np.arange(n)[:, None], (1, n)))  # rank 0: 1 1 1 1, rank 1: 10 10 10 10, ...
stages = {"start": parts}
for step in range(n - 1):
    sent = [parts[r, (r - step - 1) % n].copy() for r in range(n)]  # what all send, before anybody adds
    parts = parts.copy()
    for r in range(n):
        parts[(r + 1) % n, (r - step - 1) % n] += sent[r]
    stages[f"step {step}"] = parts
for name, numbers in stages.items():
    print(name)
    for r in range(n):
        print(f"    rank {r}:", "".join(f"{x:6.0f}" for x in show(numbers)[r]))

# %% tags=["slide"]
schematics.ring({name: show(numbers) for name, numbers in stages.items()}, lambda x: str(int(x)).count("1") / n)

# %% [markdown]
# ⟦The darker a stretch, the more ranks are in its sum.⟧ A rank passes on the stretch that has just arrived. Each digit says which rank's number is in a sum: 1111 is complete.
# Rank $r$ ends with stretch $r$. This is *reduce-scatter*. In three more steps the complete stretches go around, without
# adding: *all-gather*. Both together are the all-reduce.
#
# `parallel/ring.py` does this with `send` and `receive`, and counts the bytes.
#
# > ⟦**Predict first.** Each rank has a million numbers of 8 bytes. How many megabytes does a rank send, with 2, 4 and 8
# > ranks? How many with a million ranks?⟧
#: 2 ranks: 8; 4 ranks: 12; 8 ranks: 14; a million ranks, in whole MB: 16


# %% tags=["slide"]
def ring_sum(group):
    ring = Ring(group)
    ring.sum(on_device(np.ones(1_000_000)))
    return ring.sent / 1e6


for n in (2, 4, 8):
    print(
        f"{n} ranks: {parallel.in_threads(n, ring_sum)[0]:5.2f} MB each, 2 (n - 1) / n · 8 MB = {16 * (n - 1) / n:5.2f}"
    )

# %% [markdown]
# ⟦A rank never sends more than 16 MB, however many ranks there are.⟧ That is why a thousand machines can train one model.
#
# ## 23.3 A network cut in two
#
# *Data parallel* training copies the model: each rank takes a part of the batch, and the gradients are summed.
# ⟦*Tensor parallel* training cuts the model. Take a feed-forward network $y = f(x W_1) W_2$. Rank $r$ holds half of the
# columns of $W_1$ and the matching half of the rows of $W_2$:⟧
#
# ⟦$$ y = f(x W_1^{(0)})\, W_2^{(0)} + f(x W_1^{(1)})\, W_2^{(1)} $$⟧
#
# The cell draws the two halves. Nothing passes between them, but something must happen where they part and where they meet.

# %% tags=["slide-given"]
whole = layers.FeedForward(6, 8, bias=False, rng=np.random.default_rng(0)).to(device, "float64")
w_1, w_2 = whole.inner.weight.value, whole.output.weight.value
boxes = {"$x$ (5, 6)": (0.0, 0.6), "?": (1.2, 0.6), "? ": (6.9, 0.6), "$y$ (5, 6)": (8.1, 0.6)}
arrows = [("$x$ (5, 6)", "?"), ("? ", "$y$ (5, 6)")]
for rank, place in ((0, 1.2), (1, 0.0)):
    own = slice(4 * rank, 4 * rank + 4)
    halves = [f"rank {rank}: $W_1^{{({rank})}}$ {w_1[:, own].shape}", f"$f$, rank {rank}", f"$W_2^{{({rank})}}$ {w_2[own].shape}"]
    boxes |= dict(zip(halves, ((2.8, place), (4.3, place), (5.7, place)), strict=True))
    arrows += zip(["?", *halves], [*halves, "? "], strict=True)
schematics.flow(boxes, arrows)

# %% [markdown]
# > ⟦**Predict first.** Which question mark stands for `identity`, and which for `all_reduce`? What is wrong without
# > `identity`: the output, $dW_1$, $dW_2$ or $dx$?⟧
#: wrong without identity: dx | the output | dW_1 | dW_2

# %% tags=["slide"]
x, dy = on_device(rng.normal(size=(5, 6))), on_device(rng.normal(size=(5, 6)))
y, backward = whole(x)
whole.zero_grad()
dx = backward(dy)


def half(group, with_identity=True):
    """y, dx, dw_1 and dw_2 of this rank's half."""
    own = slice(4 * group.rank, 4 * group.rank + 4)
    copied, identity_backward = parallel.identity(x, group)
    hidden = copied @ w_1[:, own]
    active = hidden * (hidden > 0.0)
    total, all_reduce_backward = parallel.all_reduce(active @ w_2[own], group)

    dterm = all_reduce_backward(dy)
    dw_2 = active.T @ dterm
    dhidden = (dterm @ w_2[own].T) * (hidden > 0.0)
    dw_1 = copied.T @ dhidden
    dcopied = dhidden @ w_1[:, own].T
    return total, identity_backward(dcopied) if with_identity else dcopied, dw_1, dw_2


def errors(halves):
    """The largest difference from the whole network."""
    wanted = [whole.inner.weight.grad, whole.output.weight.grad]
    joined = [
        np.concatenate([show(each[2]) for each in halves], axis=1),
        np.concatenate([show(each[3]) for each in halves]),
    ]
    found = {"y": abs(show(halves[0][0] - y)).max(), "dx": abs(show(halves[0][1] - dx)).max()}
    found |= {name: abs(a - show(b)).max() for name, a, b in zip(("dw_1", "dw_2"), joined, wanted, strict=True)}
    return ", ".join(f"{name} {'right' if error < 1e-12 else 'WRONG'}" for name, error in found.items())


print("with identity:   ", errors(parallel.in_threads(2, half)))
print("without identity:", errors(parallel.in_threads(2, lambda group: half(group, with_identity=False))))

# %% [markdown]
# ⟦Only $dx$ is wrong, so in a network of one layer nobody would notice.⟧ In a deep one, every layer below gets a wrong
# gradient. `parallel.cut(model, group)` cuts a whole model in this way, attention by its heads, and the table of tokens by
# its rows. `minitransformer check collectives` checks all of them by finite differences across ranks.
#
# ## 23.4 What it costs
#
# ⟦Sending a message of $N$ bytes takes $\alpha + \beta N$ seconds: $\alpha$ to get going, $\beta$ for each byte.⟧ ⟦A ring of
# $n$ ranks sends $2(n - 1)$ messages of $N/n$ bytes, so its sum takes⟧
#
# ⟦$$ T = 2(n - 1)\,\alpha + 2\,\frac{n - 1}{n}\, N \beta $$⟧
#
# Let us fit $\alpha$ and $\beta$ here, to a ring of threads. (Their bytes are copies in memory, not on a network; for
# processes there is `python -m benchmarks.ranks all-reduce`.)
#
# > ⟦**Predict first.** For which arrays does $\alpha$ matter, and for which does $\beta$?⟧
#: α matters for: short arrays | long arrays; β matters for: long arrays | short arrays

# %% tags=["varies", "slide"]
sizes = [2**k for k in range(8, 23, 2)]  # bytes


def timed(group):
    """The median seconds of a sum of each size."""
    ring, found = Ring(group), []
    for size in sizes:
        numbers, seconds = on_device(np.ones(size // 8)), []
        for _ in range(15):
            began = time.perf_counter()
            ring.sum(numbers)
            seconds.append(time.perf_counter() - began)
        found.append(np.median(seconds))
    return found


n = 4
seconds = np.array(parallel.in_threads(n, timed)[0])
terms = np.array([[2 * (n - 1), 2 * (n - 1) / n * size] for size in sizes])
alpha, beta = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(sizes)), rcond=None)[0]
print(f"alpha {1e6 * alpha:.0f} microseconds, 1/beta {1e-9 / beta:.1f} GB/s")
figure, ax = plt.subplots(figsize=(5.4, 2.6), layout="constrained")
ax.loglog(sizes, seconds, "o", label="measured")
ax.loglog(sizes, terms @ [alpha, beta], label="fitted")
ax.set(xlabel="bytes", ylabel="seconds of a sum")
round_ticks(ax.xaxis, ax.yaxis)
ax.legend()
plt.show()

# %% [markdown]
# ⟦Short arrays cost $\alpha$ alone, so many small sums are slow; training puts gradients together in buckets.⟧ Long ones
# cost $\beta N$. Now carry the model to machines that we do not have: the gradients of GPT-2, 124 million float32 numbers.
#
# > ⟦**Predict first.** Machines sum the gradients of GPT-2, 124 million float32 numbers, at 10 Gbit/s. Is the sum over 1024
# > machines 100 times as slow as over 8, or twice, or about as slow?⟧
#: the sum over 1024: is about as slow | is twice as slow | is 100 times as slow

# %% tags=["slide"]
gradients, latency = 4 * 124_439_808, 25e-6  # bytes; seconds for a message, an assumption
print("computed, not measured:")
for gigabits in (10, 100):
    for n in (8, 64, 1024):
        seconds = 2 * (n - 1) * latency + 2 * (n - 1) / n * gradients * 8e-9 / gigabits
        print(f"    {gigabits:3d} Gbit/s, {n:4d} ranks: {seconds:5.2f} s")

# %% [markdown]
# ⟦About as slow. But each of the 1024 machines has a smaller share of the batch, so the sum takes more of its step.⟧ Two
# remedies: begin the sum while backward still runs (`run/machines/buckets.py`), or take larger batches.

# %% [markdown]
# ## Exercises

# %%
course.exercise("ring_step")


# %%
def ring_step(parts, t):
    raise NotImplementedError


course.check("ring_step", ring_step)

# %%
course.exercise("all_gather_backward")


# %%
def all_gather_backward(dys):
    raise NotImplementedError


course.check("all_gather_backward", all_gather_backward)

# %% [markdown]
# **3.** Write the matrix of reduce-scatter for two ranks with two numbers each, and transpose it. Which collective is it?
#
# **4.** Two ranks have losses that are means over 10 and over 30 tokens. Somebody averages the two gradients. What is the
# right weight of each?
#
# **5 (discussion).** A pipeline gives each rank some of the layers. Rank 0 is done with a batch after a quarter of the
# time, and waits. What can it do meanwhile? (`parallel/pipeline.py`)
