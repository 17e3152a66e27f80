# %% [markdown]
# # 25 Eight exchanges
#
# How far is GPT-2 (2019) from a model of today? Eight parts. Here you exchange them, one after the other, and measure
# each time what it does: to the number of parameters, to the operations, to the memory of a text that is being written,
# to the loss, and to the time of a step. Then comes the question that such tables seldom answer: would another seed have said the same?
#
# After this hour you can
#
# - name the eight parts, and say what each saves or costs;
# - count parameters, operations and cached numbers of a model before you build it;
# - tell an effect from the spread of the seeds;
# - say what a small trial cannot show.
#
# You need: norms (10), positions (20), the cache (14), cheaper attention (21), experts (22).

# %%
device = "numpy"  # on a GPU: "cupy"

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from time import process_time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, cost, course, ideas, layers, models, training
from minitransformer.core.models.language_model import LanguageModelParts
from minitransformer.core.text.number_words import english
from minitransformer.core.training.corpora import TextCorpus

os.environ["MINITRANSFORMER_DEVICE"] = device  # where models put their parameters
threadpool_limits(1)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## The text
#
# ⟦Numbers, and the same numbers in words, each on a line, in random order. The model reads letter by letter.⟧ The digits
# cannot be guessed. The words can, by a model that looks back at the digits.

# %% tags=["slide"]
order = np.random.default_rng(0).permutation(10_000)
text = "".join(f"{n} {' '.join(english(int(n)))}\n" for n in order)
letters = sorted(set(text))
ids = np.array([letters.index(letter) for letter in text])
print(text[: text.index("\n", 120)])

# %% [markdown]
# ## GPT-2, with sockets
#
# The recipe has a field for each part that will be exchanged. What stands in the fields first is GPT-2. It is small:
# width 32, 4 heads, 3 layers, and it reads 64 letters.

# %%
V, D, H, L, T = len(letters), 32, 4, 3, 64  # letters, width, heads, layers, length


@dataclass(frozen=True)
class Recipe:
    vocabulary: int = V
    max_length: int = T
    norm: Any = lambda: layers.LayerNorm(D)
    positions: Any = lambda rng: layers.LearnedPositions(T, D, rng=rng)
    turn: Any = lambda: (None, None)
    mix: Any = lambda i: layers.ScaledDotProduct()
    attention: Any = lambda **parts: ideas.grouped(D, H, H, **parts)
    feed_forward: Any = lambda **parts: layers.FeedForward(D, 4 * D, "gelu_tanh", **parts)
    bias: bool = True

    def parts(self, rng):
        tokens = layers.Embedding(V, D, std=0.02, rng=rng)

        def layer(i):
            attention = self.attention(bias=self.bias, rng=rng, mix=self.mix(i), turn=self.turn())
            feed_forward = self.feed_forward(bias=self.bias, rng=rng)
            both = (layers.Residual(sublayer, self.norm(), "pre") for sublayer in (attention, feed_forward))
            return layers.EncoderLayer.of(*both)

        stack = layers.Encoder.of([layer(i) for i in range(L)], self.norm())
        return LanguageModelParts(layers.InputEmbedding(tokens, self.positions(rng)), stack, tokens)


# %% [markdown]
# Is it GPT-2? The library's own, with the same parameters, must give the same logits.

# %%
gpt2 = Recipe()
sizes = {"max_length": T, "d_model": D, "n_heads": H, "d_ff": 4 * D, "n_layers": L}
library = models.LanguageModel(models.LanguageModelConfig(V, dropout=0.0, attention_dropout=0.0, **sizes))
ours = models.LanguageModel(gpt2)
ours.load_state(library.state())
first = backend.to_device(ids[None, :T], device)
both = [backend.to_numpy(model(first)[0]) for model in (ours, library)]
print("the same logits:", np.allclose(*both, atol=1e-5))

# %% [markdown]
# Three counts, none of which needs a clock:
#
# - **parameters**: all learned numbers;
# - **operations** for a token of the forward pass, a multiplication and an addition counted as two;
# - **cached** numbers, once the model has read 64 letters to continue them (notebook 14).


# %%
def counts(recipe):
    """Parameters, operations for a token, cached numbers after T letters."""
    model = models.LanguageModel(recipe)
    info, cache = cost.describe(model, 1, T), model.new_cache()
    model(first, cache=cache)
    cached = sum(part.size for layer in cache.self_attention for part in layer.read())
    return info.parameters, info.flops // T, cached


chain = {"GPT-2": gpt2}


def exchange(name, **parts):
    """Exchange parts of the last model of the chain, and print what changes."""
    before = list(chain.values())[-1]
    chain[name] = replace(before, **parts)
    for what, old, new in zip(("parameters", "operations", "cached"), counts(before), counts(chain[name]), strict=True):
        change = f"{abs(new - old):,} {'more' if new > old else 'fewer'}" if new != old else "as before"
        print(f"{what:11} {old:8,} -> {new:8,}   {change}")


# %% [markdown]
# ## 25.1 RMSNorm for LayerNorm
#
# ⟦RMSNorm subtracts no mean and adds no bias (Zhang and Sennrich 2019).⟧ The model has 7 norms: two in each layer, and the
# last one.
#
# ⟦**Predict first.** Seven norms of width 32: how many parameters go?⟧
#: parameters that go: 224

# %% tags=["slide-code"]
exchange("RMSNorm", norm=lambda: layers.RMSNorm(D))

# %% [markdown]
# ⟦The biases: $7 \cdot 32$. A norm has no matrix product, so the operations stay.⟧ What it saves is time to read and write,
# which a count of products does not see.
#
# ## 25.2 Rotations for learned positions
#
# ⟦Nothing is added to the token; queries and keys are turned (Su et al. 2021; notebook 20).⟧
#
# ⟦**Predict first.** The table of positions had 64 rows of width 32. How many parameters go?⟧
#: parameters that go: 2048

# %% tags=["slide-code"]
exchange("rotary", positions=lambda rng: None, turn=lambda: ideas.rotary_turn(10000.0))

# %% [markdown]
# $64 \cdot 32$, and with them the limit of 64 letters.
#
# ## 25.3 A gated SiLU network for GELU
#
# ⟦Instead of $f(x W_1) W_2$ now $(f(x W_g) \odot x W_1)\, W_2$ (Shazeer 2020, "GLU Variants Improve Transformer").⟧ This
# has three matrices instead of two.
#
# ⟦**Predict first.** The inner width was 128. Which one gives three matrices the size of two, rounded down?⟧
#: inner width: 85

# %% tags=["slide-code"]
exchange("gated SiLU", feed_forward=lambda **parts: ideas.GatedFeedForward(D, 8 * D // 3, "silu", **parts))

# %% [markdown]
# ⟦Two thirds of 128. What changes now comes from the gate, not from the size.⟧ The 30 more
# parameters are biases: the gate has its own.
#
# ## 25.4 No biases
#
# ⟦The linear maps lose their biases, as in Llama (Touvron et al. 2023).⟧
#
# ⟦**Predict first.** A layer has four maps of attention with 32 outputs each, and three of its network, with 85, 85 and
# 32. How many biases go in three layers?⟧
#: biases that go: 990

# %% tags=["slide-code"]
exchange("no biases", bias=False)

# %% [markdown]
# ⟦$3 \cdot (4 \cdot 32 + 85 + 85 + 32)$: about 3% here, and 0.1% in a model of width 1000.⟧ In a matrix of $D \times D$ the
# share of its bias is $1/D$.
#
# ## 25.5 One key head for four
#
# ⟦All query heads share one head of keys and one of values (Shazeer 2019; groups of them: Ainslie et al. 2023; notebook
# 21).⟧
#
# ⟦**Predict first.** After 64 letters the cache has $2 \cdot 3 \cdot 64 \cdot 32 = 12{,}288$ numbers. How many with one key
# head instead of four?⟧
#: cached numbers: 3072

# %% tags=["slide-code"]
exchange("one key head", attention=lambda **parts: ideas.grouped(D, H, 1, **parts))

# %% [markdown]
# A quarter. Keys and values also need smaller matrices, so the operations fall.
#
# ## 25.6 Norms of queries and keys
#
# An RMSNorm for each query and key before it is turned, so that scores cannot grow without bound (Henry et al. 2020;
# Qwen3).
#
# **Predict first.** A head has width 8, and all heads share a gain. How many parameters come in three layers, for queries
# and for keys?
#: parameters that come: 48

# %%
exchange("query-key norms", turn=lambda: ideas.qk_norm(D // H, rotary_base=10000.0))

# %% [markdown]
# $3 \cdot 2 \cdot 8$: nearly nothing.
#
# ## 25.7 A window in most layers
#
# ⟦All layers but the last see 16 letters (as most layers of Gemma 3 and every second of gpt-oss do). Their cache forgets
# the rest.⟧
#
# ⟦**Predict first.** Two of three layers now keep 16 letters instead of 64. How many of 3072 cached numbers remain?⟧
#: cached numbers: 1536

# %% tags=["slide-code"]
exchange("windows", mix=lambda i: layers.ScaledDotProduct() if i == L - 1 else ideas.Window(16))

# %% [markdown]
# ⟦$1024 + 2 \cdot 256$. The longer the text, the nearer to a third.⟧ The operations stay because this code computes all
# scores and hides most of them. Fast code skips them.
#
# ## 25.8 Experts for the network
#
# ⟦Four gated networks of half the width; a router chooses two for each token (Shazeer et al. 2017; notebook 22).⟧
#
# ⟦**Predict first.** What happens to the parameters of the feed-forward networks, and to their operations?⟧
#: parameters: about twice as many | the same | half as many; operations: nearly the same | about twice as many | half

# %% tags=["slide-code"]
exchange("experts", feed_forward=lambda **parts: ideas.MixtureOfExperts(D, 4 * D // 3, n_experts=4, k=2, **parts))

# %% [markdown]
# ⟦More to remember, for the same work: two halves and a router.⟧
#
# That is a model of today: RMSNorm, rotations, gated experts without biases, shared key heads with norms, and windows.
# Qwen3 MoE and gpt-oss have nearly this list (`minitransformer info --families` names what each family adds). No
# line of attention or of the layers was changed on the way: each exchange handed in another part.
#
# ## 25.9 What the loss says
#
# ⟦Each of the nine models learns for 40 steps, with one seed, and is then tried on lines that it has not seen.⟧
#
# ⟦**Predict first.** Which exchange helps most? Which one hurts?⟧


# %%
def learned(recipe, steps, seed, peak=5e-3):
    """The loss of a letter of unseen lines, after some steps, and the seconds that the processor took for a step."""
    model = models.LanguageModel(recipe, np.random.default_rng(seed))
    worker, optimizer = training.Worker(model), training.AdamW(model.parameters(), peak)
    corpus, begin = TextCorpus(ids[:400_000], T, rows=8), process_time()
    for _ in training.train(
        worker, corpus, optimizer, steps, lambda step: training.cosine(step, peak, steps // 10, steps), 1.0, seed
    ):
        pass
    seconds = (process_time() - begin) / steps
    return worker.loss(TextCorpus(ids[400_000:410_000], T, rows=32)), seconds


# %% tags=["varies", "slide"]
steps, seeds = 40, [0]

for name, recipe in chain.items():
    losses, seconds = zip(*(learned(recipe, steps, seed) for seed in seeds), strict=True)
    print(f"{name:16} {' '.join(f'{loss:6.3f}' for loss in losses)}   {1000 * min(seconds):4.0f} ms", flush=True)

# %% [markdown]
# ⟦Some numbers fall, some rise. Is that the part, or the luck of the first weights?⟧ A single column cannot tell. Even with
# the same seed two of these models begin with other weights: as soon as a part draws more or fewer numbers, all that come
# after it are others.
#
# The same for longer and with three seeds, from the repository, takes some minutes:
#
#     sed 's/^steps, seeds = .*/steps, seeds = 300, [0, 1, 2]/' notebooks/source/25_eight_exchanges.py | MPLBACKEND=Agg python -
#
# It printed the losses of the next cell. More steps say more; take as many as you have time for.

# %%
table = """
GPT-2             0.723  0.763  0.637
RMSNorm           0.693  0.788  0.692
rotary            0.495  0.469  0.489
gated SiLU        0.478  0.489  0.464
no biases         0.484  0.491  0.477
one key head      0.496  0.504  0.509
query-key norms   0.508  0.507  0.500
windows           0.476  0.484  0.481
experts           0.488  0.483  0.477
"""
stored = {line[:16].strip(): np.array(line[16:].split(), float) for line in table.strip().splitlines()}

# %% [markdown]
# ⟦The *spread* of a model: its largest minus its smallest loss over the seeds. An exchange says something only if it moves
# the mean by more than the spread before it and the spread after it.⟧
#
# ⟦**Predict first.** How many of the eight exchanges move the mean by more than the spread of three seeds?⟧
#: how many: 3

# %% tags=["slide"]
print(f"{'exchange':16} {'change':>7} {'spread':>7}   larger than the spread?")
names = list(stored)
for before, after in pairwise(names):
    change = stored[after].mean() - stored[before].mean()
    spread = max(np.ptp(stored[before]), np.ptp(stored[after]))
    print(f"{after:16} {change:+7.3f} {spread:7.3f}   {'yes' if abs(change) > spread else 'no'}")

# %% tags=["slide"]
figure, ax = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
for i, losses in enumerate(stored.values()):
    ax.plot([i, i], [losses.min(), losses.max()], color="tab:gray", linewidth=6, alpha=0.4, solid_capstyle="butt")
    ax.plot([i] * len(losses), losses, "o", color="tab:blue", markersize=4)
    ax.plot([i - 0.3, i + 0.3], [losses.mean()] * 2, color="tab:orange")
ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
ax.set_ylabel("loss")
plt.show()

# %% [markdown]
# ⟦A dot is a seed, a grey bar the spread, an orange line the mean.⟧ Three stand out. Rotations
# help most: a window begins anywhere in a line, so a learned position says little about the place in the line, and
# distances say much. Windows help a little, and one key head hurts a little; with more seeds these two may vanish. The
# other five move the mean by no more than another seed would.
#
# ## 25.10 What such a trial cannot say
#
# ⟦
# - **Size.** Norms of queries and keys are there for runs of many steps at high rates, which otherwise fail. Nothing
#   fails in 300 steps.
# - **Length.** Shared heads, windows: their gain is in texts of thousands of tokens. Here a line is shorter than 64
#   letters.
# ⟧
#
# ⟦
# - **Rate.** All nine had the same learning rate. Each deserves its own best one.
# - **Order.** Every part was tried on top of the ones before. Another order gives other differences.
# - **Seeds.** Three seeds show a spread, but do not measure it well.
# ⟧
#
# ⟦
# - **Time.** Counted operations are not seconds: a norm has none and takes time; experts have the same and take longer.
# - **Text.** Lines with digits reward a model that finds its place. Prose asks for other things.
# ⟧
#
# So why does everybody make these exchanges? Some save memory at no loss that anybody could find, in trials a million
# times larger than this one. Others keep long runs from failing. And some are habit.

# %% [markdown]
# ## Exercises

# %%
course.exercise("rms_norm_backward")


# %%
def rms_norm_backward(x, gamma, eps, dy):
    raise NotImplementedError


course.check("rms_norm_backward", rms_norm_backward)

# %%
course.exercise("shared_heads_backward")


# %%
def shared_heads_backward(q, k, v, weights, doutput):
    raise NotImplementedError


course.check("shared_heads_backward", shared_heads_backward)

# %% [markdown]
# **3.** Undo one exchange in the last model: `replace(chain["experts"], norm=lambda: layers.LayerNorm(D))`. First say what
# `counts` will show, then look. Does the loss of `learned` change by as much as in the chain? By more than another seed?
#
# **4 (discussion).** A paper reports that a new part lowers the loss by 0.01, in one run of each model. What would you ask
# its authors?
