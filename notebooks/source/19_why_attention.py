# %% [markdown]
# # 19 Why attention
#
# "Attention Is All You Need" argues with a table: what a layer costs, how many steps must wait for one another, and how
# far a signal has to travel. Here you measure that table.
#
# After this hour you can
#
# - say for which lengths attention is cheaper than recurrence, and count it;
# - find the path length of a layer from its gradients;
# - explain why a recurrent network forgets, and what an LSTM does about it.
#
# You need: attention (6), vector-Jacobian products (2).

# %%
import matplotlib.pyplot as plt
import numpy as np

from minitransformer import course, ideas
from minitransformer.school.compare import measure
from minitransformer.school.compare.mixers import FLOWS, MIXERS
from minitransformer.school.show import schematics

np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Four ways to mix
#
# ⟦A sequence is $n$ vectors of width $d$. Each way lets every vector learn from others:⟧
#
# - **attention**: every vector looks at all before it (our code computes the whole square and hides half of it);
# - **recurrent**: a state walks along the sequence and reads one vector at each step;
# - **convolution**: every vector sees a window of $k = 3$;
# - **restricted attention**: every vector looks at the 16 before it (in blocks of 16 queries, which compute 32 scores
#   each).
#
# The next cell draws which vectors each layer reads: it sends a gradient back from every output and marks the inputs that
# it reaches.

# %% tags=["slide"]
four = {name: MIXERS[name] for name in ("attention", "recurrent", "convolution", "restricted")}


def reads(mixer, n=40):
    """Row i: how much of the gradient of output i reaches each input, in one layer (one step of the recurrence)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 8))
    _, backward = mixer.layer(1 if mixer.name == "recurrent" else 0, x, rng)(x)
    sizes = np.array([np.linalg.norm(backward(np.outer(row, rng.normal(size=8))), axis=1) for row in np.eye(n)])
    return sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1e-12)


schematics.looks({name: reads(mixer) for name, mixer in four.items()}, "output", "input")

# %% [markdown]
# ⟦A row is an output, a column an input.⟧ The recurrence reads only its neighbour's state; everything older must be in
# that state.
#
# ⟦**Predict first.** How do the multiplications grow if $n$ doubles? If $d$ doubles? Fill in a table of eight factors.⟧
#: attention, n doubled: 4; attention, d doubled: 2; recurrent, n doubled: 2; recurrent, d doubled: 4
#: convolution, n doubled: 2; convolution, d doubled: 4; restricted, n doubled: 2; restricted, d doubled: 2

# %% tags=["slide"]
print(f"{'':12} {'formula':>9} {'n=256, d=32':>12} {'n doubled':>10} {'d doubled':>10}")
for name, mixer in four.items():
    once = measure.counted(mixer, 256, 32)
    by_n, by_d = measure.counted(mixer, 512, 32) / once, measure.counted(mixer, 256, 64) / once
    print(f"{name:12} {mixer.formula:>9} {once:12,} {by_n:10.1f} {by_d:10.1f}")

# %% [markdown]
# ⟦These are counted while the layer runs, not computed from the formula.⟧ Of these four, attention
# alone pays for $n^2$; recurrence and convolution pay for $d^2$. (Notebook 21 has cheaper forms of attention.)
#
# ⟦**Predict first.** At $d = 512$, as in the paper, for which $n$ does attention ($2 n^2 d$) cost as much as recurrence
# ($2 n d^2$)? How long is an ordinary sentence?⟧
#: n: 512

# %% tags=["slide"]
d = 512
print("attention / recurrence    as counted   mixing alone   with all matrices")
for n in (32, 128, 512, 2048):
    attention, recurrent = (MIXERS[name].multiplications(n, d) for name in ("attention", "recurrent"))
    matrix = n * d * d  # a matrix (d, d) at every position
    alone, complete = attention / (recurrent - matrix), (attention + 4 * matrix) / recurrent
    print(f"n = {n:4d} {attention / recurrent:25.4f} {alone:14.3f} {complete:19.2f}")

# %% [markdown]
# ⟦As counted, they are equal at $n = d$, and attention is sixteen times cheaper for a sentence of 32 words.⟧ Take this
# number with care: it counts attention without its four projections ($W_Q$, $W_K$, $W_V$, $W_O$: $4 n d^2$), but
# recurrence with its input matrix ($n d^2$ of its $2 n d^2$). Without these matrices on both sides attention is eight
# times cheaper; with all of them it costs twice as much at $n = 32$. So attention wins because its path is short and
# its work can run at once, not by its count. And for a book of 100,000 words $n^2$ decides: that is why later work made
# attention cheaper.
#
# ## Time
#
# ⟦Counts are not seconds. If time is $c \cdot n^p$, the logarithms lie on a line with the slope $p$.⟧

# %% tags=["varies", "slide"]
for name in ("attention", "recurrent"):
    lengths = [256, 512, 1024]
    times = measure.seconds(MIXERS[name], [(n, 32) for n in lengths])
    print(f"{name:10} {' '.join(f'{1000 * t:8.2f}' for t in times)} ms;  exponent {measure.exponent(lengths, times):.2f}")

# %% [markdown]
# Attention's exponent is near 2, recurrence's near 1. Yet recurrence is slow for what it computes: its $n$ steps must
# wait for one another, and each is a small product. Attention is two large products. On a GPU, which computes thousands
# of numbers at once, this decides. `minitransformer compare layers` measures larger sizes, memory as well.
#
# ## How far a signal travels
#
# ⟦Stack layers until the last output depends on the first input: until $\partial y_n / \partial x_1 \ne 0$.⟧ The number
# of layers (for recurrence: of steps) is the path length. Everything that a model learns about a pair of words travels
# along this path, forward and back.
#
# ⟦**Predict first.** The path lengths for $n = 64$. (The windows of the convolutions are dilated: 1, 3, 9, ... apart. The
# first step of the recurrence reads $x_1$ already.)⟧
#: attention: 1; recurrent: 64; convolution: 4; restricted: 4

# %% tags=["slide"]
print(f"{'n':12} " + " ".join(f"{n:5d}" for n in (4, 16, 64)))
for name, mixer in four.items():
    print(f"{name:12} " + " ".join(f"{measure.path_length(mixer, n):5d}" for n in (4, 16, 64)))

# %% [markdown]
# ⟦$1$, $n$, $\log_3 n$ rounded up, and $(n - 1) / 16$ rounded up.⟧ Of the four, only attention connects every pair at once.
#
# ## What is left of a gradient
#
# ⟦A long path is bad if something is lost at each step.⟧ Send a gradient of length 1 from the last position back:
#
# ⟦$$\left\| \frac{\partial y_n}{\partial x_{n - s}} \right\|$$⟧
#
# In a plain recurrent cell each step multiplies by $W^\top$ and by $\tanh' \le 1$.
#
# ⟦**Predict first.** If each step keeps 60 %, what is left after 32 steps?⟧
#: left: 8e-08

# %% tags=["slide"]
left = {name: measure.flow(name, 33, 16, draws=3) for name in FLOWS}
print(f"by 0.6 at each step: {0.6**32:.0e}")
for name, norms in left.items():
    print(f"{name:12} after 1: {norms[1]:.0e}   after 8: {norms[8]:.0e}   after 32: {norms[32]:.0e}")

# %% tags=["slide"]
plt.figure()
for name, norms in left.items():
    plt.semilogy(range(1, 33), norms[1:], label=name)
plt.xticks([1, 8, 16, 24, 32])
plt.xlabel("distance")
plt.ylabel("what is left")
plt.legend()
plt.show()

# %% [markdown]
# ⟦A straight line on this scale is a constant factor at each step: the gradient vanishes exponentially, here faster than
# by 0.6.⟧ Attention shares its weight among all positions, so what is left is small, but the same at every distance.
#
# An untrained LSTM also loses its gradient, but it can learn to keep it. Besides its output $h$ it has a cell $c$. Four
# linear maps of its input and of $h$ make the numbers $f$, $i$, $g$ and $o$, and $\sigma(x) = 1 / (1 + e^{-x})$ makes
# gates of three of them:
#
# ⟦$$c' = \sigma(f)\,c + \sigma(i)\tanh(g), \qquad h' = \sigma(o)\tanh(c')$$⟧
#
# Along the cell, from step to step, the gradient is multiplied by $\partial c' / \partial c = \sigma(f)$. (A second
# path leads through $h$.)
#
# ⟦**Predict first.** What is $\partial c'/\partial c$ for $f = 0$, where an untrained cell is? For $f = 5$? After 32 steps?⟧
#: f = 0, one step: 0.5; f = 0, 32 steps: 2.3e-10; f = 5, one step: 0.99; f = 5, 32 steps: 0.81

# %% tags=["slide"]
for f in (0.0, 2.0, 5.0):
    sums = np.array([0.0, f, 0.0, 0.0])  # i, f, g, o
    _, backward = ideas.lstm_cell(sums, np.array([0.0, 1.0]), np.zeros((1, 4)))
    keeps = backward(np.array([0.0, 1.0]))[1][1]
    print(f"f = {f}: one step keeps {keeps:.4f}, 32 steps {keeps**32:.1e}")

# %% [markdown]
# The same cell as a picture, for four sums that we choose. An arrow is as thick as the gate that lets it pass.

# %% tags=["slide"]
sums, c = np.array([-1.0, 2.0, 1.0, 0.5]), 1.0  # i, f, g, o
new = ideas.lstm_cell(sums, np.array([0.0, c]), np.zeros((1, 4)))[0]
let_in, keep, _, let_out = 1.0 / (1.0 + np.exp(-sums))
boxes = {
    f"$c$ = {c:.2f}": (0.0, 2.2),
    "×": (1.8, 2.2),
    "+": (3.6, 2.2),
    f"$c'$ = {new[1]:.2f}": (6.0, 2.2),
    f"$\\sigma(f)$ = {keep:.2f}": (1.8, 1.0),
    "× ": (3.6, 1.0),
    "×  ": (6.0, 1.0),
    f"$h'$ = {new[0]:.2f}": (7.8, 1.0),
    f"$\\sigma(i)$ = {let_in:.2f}": (2.7, 0.0),
    f"$\\tanh(g)$ = {np.tanh(sums[2]):.2f}": (4.5, 0.0),
    f"$\\sigma(o)$ = {let_out:.2f}": (6.0, 0.0),
}
old, times, plus, cell, forget, times_2, times_3, output, admit, candidate, emit = boxes
along = [(old, times, 1.0), (times, plus, keep), (plus, cell, 1.0), (cell, times_3, 1.0), (times_3, output, let_out)]
into = [(forget, times), (admit, times_2), (candidate, times_2, 1.0), (times_2, plus, let_in), (emit, times_3)]
schematics.flow(boxes, [*along, *into])

# %% [markdown]
# ⟦The cell runs along the top from left to right: no matrix stands in its way, only $\sigma(f)$.⟧ (Between $c'$ and the
# gate $\sigma(o)$ there is a $\tanh$.) An open forget gate passes the gradient on without a matrix and almost without
# loss: a residual connection through time. But the model must learn to open the gate, and the state is still one vector
# for everything that was read. Attention keeps all vectors, and reaches each in one step.
#
# ## Does it matter?
#
# `python -m benchmarks.translators` trains four translators of equal size; [docs/before.md](../docs/before.md) has the
# figures. On short sentences, which were rare in training, the LSTM without attention fails most.

# %% [markdown]
# ## Exercises
#
# Restricted attention is attention under a mask; here, unlike above, each position sees `radius` others on both sides.
# (Computed in this way, it still costs $n^2$: `ideas.local_attention` computes only
# the blocks on the diagonal.)

# %%
course.exercise("local_mask")


# %%
def local_mask(t, radius):
    raise NotImplementedError


course.check("local_mask", local_mask)

# %% [markdown]
# **2.** On paper: how many dilated convolutions with kernel 3 reach over 1000 positions? And not dilated?
#
# **3 (discussion).** A linear recurrence without $\tanh$, $h' = a h + x$, can be computed for all positions at once. Why?
# What is its path length, and what is left of a gradient after 100 steps if $a = 0.99$?
