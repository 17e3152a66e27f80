# %% [markdown]
# # 6 Attention by hand
#
# Three tokens, whole numbers, every matrix on the board. The numbers are those of an example that many introductions
# use. We compute it, find out what its rounding and its sizes hide, and then use a better example, its twin.
#
# After this hour you can
#
# - compute self-attention with pencil and paper;
# - say what a query, a key and a value are, and read a matrix of weights;
# - explain why an example in which all sizes are equal cannot show whether code is right.
#
# You need: notebook 3; the product of matrices.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

import minitransformer
from minitransformer import backend, course, ops
from minitransformer.course import MISTAKES
from minitransformer.school.course.worked_example import UNEQUAL, UNSCALED, self_attention
from minitransformer.school.show.plots import matrices

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## The idea
#
# ⟦To look up a word in a dictionary, you compare your *query* with every *key* and take the *value* of the one that
# matches.⟧ Attention does the same softly. It compares the query with all keys, turns the matches into weights, and
# takes the mean of all values under these weights.
#
# Each token makes its own query, key and value from its vector, a row of $x$, with three learned matrices:
#
# ⟦$$q = x W_Q, \qquad k = x W_K, \qquad v = x W_V$$⟧
#
# *What am I looking for? What can I be found by? What do I have to say?*

# %% tags=["slide-given"]
x, w_q, w_k, w_v = (xp.asarray(a) for a in (UNSCALED.x, UNSCALED.w_q, UNSCALED.w_k, UNSCALED.w_v))
display(matrices(x=x, W_Q=w_q, W_K=w_k, W_V=w_v))

# %% [markdown]
# ⟦**Predict first**, with a pencil: the first row of $q$, of $k$ and of $v$. The first token is $(1, 0, 1, 0)$, so each
# is the sum of two rows of a matrix.⟧
#: q: (1, 0, 2); k: (0, 1, 1); v: (1, 2, 3)

# %% tags=["slide"]
q, k, v = x @ w_q, x @ w_k, x @ w_v
display(matrices(q=q, k=k, v=v))

# %% [markdown]
# ## Scores: every query against every key
#
# ⟦$$\text{scores}_{ij} = \sum_c q_{ic}\, k_{jc}, \qquad \text{scores} = q\,k^\top$$⟧
#
# ⟦Row $i$ belongs to the query of token $i$, column $j$ to the key of token $j$.⟧
#
# ⟦**Predict first:** the scores of the first query, $(1, 0, 2)$. Which token will it look at most?⟧
#: scores: (2, 4, 4)

# %% tags=["slide"]
scores = q @ k.T
display(matrices(q=q, k_transposed=k.T, scores=scores))

# %% [markdown]
# ## Weights: softmax, row by row
#
# ⟦Each query divides its attention among the keys, so each **row** sums to one.⟧ Softmax takes $e$ to the power of each
# score and divides by the sum of the row. The first row has the scores 2, 4, 4: with $e^2 \approx 7.4$ and
# $e^4 \approx 54.6$, its weights are $7.4$, $54.6$, $54.6$ parts of $116.6$.
#
# ⟦**Predict first.** What will the second row, from the scores 4, 16, 12, look like?⟧
#: the second row: (0.00, 0.98, 0.02)

# %% tags=["slide"]
weights, _ = ops.softmax(scores)
display(matrices(weights=weights))
print(weights)

# %% [markdown]
# ⟦A difference of 4 between two scores is a factor of $e^4 \approx 55$ between two weights: the second token looks at
# itself and at hardly anything else.⟧
#
# ⟦Introductions round the weights of our example to⟧
#
# ⟦$$\begin{pmatrix} 0 & 0.5 & 0.5 \\ 0 & 1 & 0 \\ 0 & 0.9 & 0.1 \end{pmatrix}$$⟧
#
# ⟦**Predict first.** The first row is (0.0634, 0.4683, 0.4683) before it is rounded. To one decimal, what is it really,
# and what does it sum to?⟧
#: to one decimal: (0.1, 0.5, 0.5); its sum: 1.1

# %% tags=["slide"]
print("to one decimal:", weights[0].round(1), " sum", round(float(weights[0].round(1).sum()), 2))

# %% [markdown]
# ⟦$0.0634$ rounds to $0.1$, not to $0$. Rounded correctly, the row sums to 1.1.⟧ Rounded as in the introductions, it
# loses 6 % of the attention. If you compare code with such an example, do not round intermediate results.
#
# ## Output: the mean of the values
#
# ⟦$$\text{output}_i = \sum_j \text{weights}_{ij}\, v_j, \qquad \text{output} = \text{weights}\; v$$⟧

# %% tags=["slide"]
output = weights @ v
rounded = xp.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]]) @ v
display(matrices(weights=weights, v=v, output=output, with_rounded_weights=rounded))

# %% [markdown]
# ⟦An output is a *mean*: no entry can be larger than the largest value in its column or smaller than the smallest.⟧
# Attention moves and mixes values, it does not make new ones. (That is the work of $W_V$ and of the feed-forward
# network.)

# %%
inside = (output > v.min(axis=0) - 1e-12) & (output < v.max(axis=0) + 1e-12)
print("every output lies between the extremes of its column of v:", bool(inside.all()))

# %% [markdown]
# ## The scale
#
# ⟦The example omits the paper's scale $1/\sqrt{d_k}$, where $d_k = 3$ is the width of queries and keys:⟧
#
# ⟦$$\text{output} = \mathrm{softmax}\Big(\frac{q\,k^\top}{\sqrt{d_k}}\Big)\, v$$⟧
#
# ⟦**Predict first.** Do the weights become more equal or less? Does the largest weight of any row move?⟧
#: the weights become: more equal | less equal; the largest weight of a row moves: no

# %% tags=["slide"]
scaled_weights, _ = ops.softmax(scores / 3**0.5)
display(matrices(without_scale=weights, with_scale=scaled_weights))

# %% [markdown]
# ⟦They become more equal: this is a temperature of $\sqrt3$.⟧ The order within a row stays the same.
#
# The library does the same in one call. (The next notebook derives its backward pass.)

# %%
library_output, backward = ops.attention(q, k, v)
print(bool(abs(library_output - scaled_weights @ v).max() < 1e-12))

# %% [markdown]
# ## What this example cannot show
#
# ⟦Look at the sizes of our example, 3 tokens, $d_k = 3$, $d_v = 3$, and at its scores:⟧
#
# ⟦$$q\,k^\top = \begin{pmatrix} 2 & 4 & 4 \\ 4 & 16 & 12 \\ 4 & 12 & 10 \end{pmatrix}$$⟧
#
# ⟦**Predict first.** Somebody computes $k\,q^\top$ in place of $q\,k^\top$. What happens?⟧
#: the scores change: no

# %% tags=["slide"]
display(matrices(q_times_k_transposed=q @ k.T, k_times_q_transposed=k @ q.T))

# %% [markdown]
# ⟦Nothing happens! These scores are symmetric, so the example cannot tell queries from keys.⟧ Let us put mistakes into
# the library and see whether the example, or its twin, gives another output.
#
# ⟦The twin of the example has the same tokens, but $d_k = 2$ and $d_v = 4$:⟧

# %% tags=["slide"]
tx, tw_q, tw_k, tw_v = (xp.asarray(a) for a in (UNEQUAL.x, UNEQUAL.w_q, UNEQUAL.w_k, UNEQUAL.w_v))
tq, tk, tv = tx @ tw_q, tx @ tw_k, tx @ tw_v
display(matrices(W_Q=tw_q, W_K=tw_k, W_V=tw_v))
display(matrices(q=tq, k=tk, v=tv, q_times_k_transposed=tq @ tk.T))

# %%
right = ops.attention(q, k, v)[0], ops.attention(tq, tk, tv)[0]


def compare(mistake, *wrong):
    print(mistake)
    for sizes, a, b in zip(("equal", "unequal"), right, wrong, strict=True):
        print(f"    {sizes:7} sizes: {'seen' if float(abs(a - b).max()) > 1e-9 else 'NOT SEEN'}")


for name in (
    "attention-not-scaled",
    "attention-scaled-after-softmax",
    "attention-scaled-by-length",
):
    with MISTAKES[name].applied():
        compare(MISTAKES[name].sentence, ops.attention(q, k, v)[0], ops.attention(tq, tk, tv)[0])
compare("Queries and keys are exchanged.", ops.attention(k, q, v)[0], ops.attention(tk, tq, tv)[0])

# %% [markdown]
# $\sqrt{T}$ instead of $\sqrt{d_k}$ is not seen, because both are $\sqrt3$ in the first example. **In a good example
# all sizes differ and nothing is symmetric.** That is why the twin exists. From here on we use it.

# %% [markdown]
# ## The twin, step by step
#
# ⟦| | rows | columns | shape |
# |---|---|---|---|
# | $q$, $k$ | tokens | $d_k$ | (3, 2) |
# | $v$ | tokens | $d_v$ | (3, 4) |
# | scores, weights | queries | keys | (3, 3) |
# | output | queries | $d_v$ | (3, 4) |⟧
#
# ⟦**Predict first:** the scores of the second query, $(0, 4)$, against the keys $(2, 1)$, $(2, 2)$ and $(3, 2)$,
# before the scale. Its two largest weights are exactly equal: why?⟧
#: scores: (4, 8, 8)

# %% tags=["slide"]
t_scores = tq @ tk.T / 2**0.5
t_weights, _ = ops.softmax(t_scores)
display(matrices(q_times_k_transposed=tq @ tk.T, weights=t_weights, output=t_weights @ tv))

# %% [markdown]
# ⟦Its first entry is 0, so only the second entry of each key counts, and that is 2 for both token 1 and token 2.⟧
#
# Here is the whole computation as a page to click through, with every intermediate and the backward pass:

# %%
minitransformer.step(
    self_attention, tx, tw_q, tw_k, tw_v, scale=UNEQUAL.scale, upstream=xp.asarray(UNEQUAL.doutput)
)

# %% [markdown]
# ## Order does not matter
#
# ⟦**Predict first.** We exchange the first and the last token. What happens to the outputs?⟧
#: the outputs: are exchanged in the same way | stay the same | are all different

# %% tags=["slide"]
order = xp.array([2, 1, 0])
outputs, _ = self_attention(tx, tw_q, tw_k, tw_v, scale=UNEQUAL.scale)
reordered, _ = self_attention(tx[order], tw_q, tw_k, tw_v, scale=UNEQUAL.scale)
display(matrices(outputs=outputs, after_reordering=reordered))
print("the same rows in the new order:", bool(abs(reordered - outputs[order]).max() < 1e-12))

# %% [markdown]
# ⟦The outputs are exchanged in the same way, and nothing else changes.⟧ Attention sees a *set* of tokens. "The dog bites
# the man" and "the man bites the dog" are the same to it until positions are added (notebook 12).
#
# ## To remember
#
# - $\text{output} = \mathrm{softmax}(q\,k^\top / \sqrt{d_k})\, v$: compare, weigh, average.
# - One row of scores and weights for each query; each row sums to one.
# - An output is a mean of values.
# - Do not round intermediate results; let all sizes differ.

# %% [markdown]
# ## Exercises
#
# ### 6.1 Attention, forward
#
# Your function is called with NumPy arrays of several sizes, so write `np`, not `xp`. The arrays have a batch axis in
# front, so `.T` would exchange too many axes; `k.swapaxes(-1, -2)` exchanges the last two.

# %%
course.exercise("attention_forward")


# %%
def attention_forward(q, k, v):
    # your code here
    raise NotImplementedError


# %%
course.check("attention_forward", attention_forward)

# %% [markdown]
# ### 6.2 With a pencil
#
# A fourth token arrives, $(1, 0, 0, 0)$. Compute its query, its scores against the three keys
# of the twin (not its own key), and its output. Leave $\sqrt2$ and exponentials as they are, then compare:

# %%
new = xp.array([[1.0, 0.0, 0.0, 0.0]])
your_query = xp.array([[0.0, 0.0]])  # fill in
your_scores = xp.array([[0.0, 0.0, 0.0]])  # before the scale; fill in
print("query right: ", bool((your_query == new @ tw_q).all()))
print("scores right:", bool((your_scores == new @ tw_q @ tk.T).all()))

# %% [markdown]
# ### 6.3 Think
#
# 1. All keys are the same. What is the output for any query?
# 2. Multiply $W_Q$ by 100. What do the weights become? What does that do to a gradient? (Notebook 4.)
# 3. In the first example, is $W_Q W_K^\top$ symmetric? Change one entry of $W_Q$ so that the scores are no longer
#    symmetric.
