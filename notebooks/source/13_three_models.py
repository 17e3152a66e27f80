# %% [markdown]
# # 13 Encoder, decoder, or both
#
# The same layers make three kinds of model. They differ in one thing: **which token may see which?** We first see the
# answer in a picture, without training. Then we train one model of each kind, in seconds, on a task that suits it.
#
# You need notebooks 8 to 12. At the end you can
#
# * choose encoder, decoder or encoder-decoder for a task, and say why;
# * tell from a dependency matrix which of the three kinds a model is;
# * write one step of Adam and the paper's schedule.

# %%
device = "numpy"  # on a GPU: "cupy"

import os

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer import backend, course, models, plots, training, verify, viewer
from minitransformer.generation import greedy
from minitransformer.text import END, PAD, START, NumberTask, english, german, padded

os.environ["MINITRANSFORMER_DEVICE"] = device  # where models put their parameters
threadpool_limits(1, "blas")  # matrices this small gain nothing from a second thread; see notebook 15
rng = np.random.default_rng(13)
show = backend.to_numpy


def on_device(*arrays):
    moved = [backend.to_device(np.asarray(x), device) for x in arrays]
    return moved if len(moved) > 1 else moved[0]


# %% [markdown]
# ## 13.1 Which token sees which
#
# ⟦| model | reads | writes | attention | examples |
# |---|---|---|---|---|
# | encoder | a whole text | a label, or a vector per token | every token sees every token | BERT |
# | decoder | a beginning | what follows, token by token | each token sees itself and what came before | GPT-2 |
# | encoder-decoder | a whole text | another text | the source as an encoder, the target as a decoder, and the target sees all of the source | the 2017 paper, T5 |⟧
#
# > ⟦**Predict first.** Change one input token of an encoder, a decoder and an encoder-decoder, and see which outputs
# > change. Draw the three pictures: rows are outputs, columns are inputs.⟧
#: encoder: full | a lower triangle | a diagonal; decoder: a lower triangle | full | a diagonal

# %% tags=["slide"]
sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
encoder = models.Classifier(models.ClassifierConfig(20, 2, n_layers=2, **sizes), rng)
decoder = models.LanguageModel(models.LanguageModelConfig(20, 16, n_layers=2, attention_dropout=0.0, **sizes), rng)
both = models.Transformer(models.TransformerConfig(20, 20, n_encoder_layers=2, n_decoder_layers=2, **sizes), rng)
source, target = rng.integers(3, 20, (1, 5)), rng.integers(3, 20, (1, 4))


def moved_by(run, ids):
    """Entry (i, j): does output i move when token j is exchanged for another?"""
    y = show(run(on_device(ids)))[0]
    table = np.zeros((len(y), ids.shape[1]))
    for j in range(ids.shape[1]):
        other = ids.copy()
        other[0, j] = (ids[0, j] + 1) % 20
        table[:, j] = np.abs(show(run(on_device(other)))[0] - y).max(axis=-1) > 1e-6
    return table


pictures = {
    "encoder": moved_by(lambda ids: encoder.encoder(encoder.embed(ids)[0])[0], source),
    "decoder": moved_by(lambda ids: decoder(ids)[0], source),
    "both: target → output": moved_by(lambda ids: both(on_device(source), ids)[0], target),
    "both: source → output": moved_by(lambda ids: both(ids, on_device(target))[0], source),
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.7), layout="constrained")
for ax, (title, table) in zip(axes, pictures.items(), strict=True):
    ax.imshow(table, cmap="Greys", vmin=0, vmax=1.5)
    ax.set(title=title, xlabel="token exchanged", xticks=range(table.shape[1]), yticks=range(len(table)))
    ax.title.set_fontsize(10)
axes[0].set_ylabel("output")
plt.show()

# %% [markdown]
# ⟦The encoder's picture is full, the decoder's is a triangle.⟧ The encoder-decoder has a triangle for the target and a
# full picture for the source. The triangle makes it possible to *train* on all positions at once: output $t$ predicts
# token $t+1$ and has not seen it, so one pass over a text of length $T$ gives $T$ valid predictions. If a decoder is
# not causal, the loss quickly falls to zero, because the model learns to copy:

# %%
with course.MISTAKES["language-model-not-causal"].applied():
    leak = moved_by(lambda ids: decoder(ids)[0], source)
print("outputs that see the token they should predict:", int(np.diag(leak, 1).sum()), "of", len(leak) - 1)

# %% [markdown]
# ## 13.2 One step of training
#
# ⟦One loop trains all three kinds of models: a batch, `zero_grad`, forward to the loss, `backward()`, a step.⟧ Adam (Kingma and Ba 2015)
# keeps two running means for each weight:
#
# ⟦$$m \leftarrow \beta_1 m + (1-\beta_1) g, \qquad v \leftarrow \beta_2 v + (1-\beta_2) g^2, \qquad
# \theta \leftarrow \theta - \eta\, \frac{m/(1-\beta_1^t)}{\sqrt{v/(1-\beta_2^t)} + \epsilon}$$⟧
#
# > ⟦**Predict first.** The very first step, $t = 1$, $m = v = 0$, gradient $g = 0.001$. How far does the weight move?
# > And with $g = 1000$?⟧
#: in units of η, g = 0.001: 1; in units of η, g = 1000: 1

# %% tags=["slide"]
for g in (0.001, 1000.0):
    m, v = (1 - 0.9) * g, (1 - 0.98) * g**2
    print(f"g = {g:8g}: moves by {m / (1 - 0.9) / ((v / (1 - 0.98)) ** 0.5 + 1e-9):.4f} η")

# %% [markdown]
# ⟦By η, for a gradient of any size: the first step depends on signs alone.⟧ (Therefore a gradient that is divided by $N$
# twice trains just as well with Adam, and only a look at the gradient itself shows the mistake.) So the first steps are
# large although they rest on little data. This is one reason to warm up:

# %% tags=["slide"]
steps = np.arange(1, 20001)
figure, ax = plt.subplots(figsize=(5.6, 2.6), layout="constrained")
for d_model, warmup in ((512, 4000), (512, 8000), (256, 4000)):
    rates = [training.warmup_schedule(int(t), d_model, warmup) for t in steps[::50]]
    ax.plot(steps[::50], rates, label=f"d_model {d_model}, warm-up {warmup}")
ax.set(xlabel="step", ylabel="learning rate", title="Vaswani et al. 2017, section 5.3")
ax.legend()
plt.show()


# %%
def train(model, draw, steps, rate=3e-3):
    """The one loop for all three. draw() gives the arguments of model.loss; returns the losses."""
    optimizer = training.AdamW(model.parameters(), rate, betas=(0.9, 0.98))
    losses = []
    for t in range(1, steps + 1):
        inputs, options = draw()
        model.zero_grad()
        loss, backward = model.loss(*on_device(*inputs), **options)
        backward()
        optimizer.step(rate * min(t / 20, 1.0 - 0.9 * t / steps))  # a short warm-up, then a linear decay
        losses.append(float(loss))
    return losses


# %% [markdown]
# ## 13.3 An encoder: are the brackets balanced?
#
# ⟦`(()())()` yes, `())(()()` no. To judge a bracket the model must see both sides: a task for an encoder.⟧ Half of the
# examples are balanced, so guessing has a loss of $\log 2 = 0.69$ and is right half of the time.


# %%
def brackets(n, length=8):
    """ids (n, length): 1 opens, 0 closes; labels: 1 where balanced. About half of the rows are."""
    ids = rng.integers(0, 2, (n, length))
    for row in range(0, n, 2):
        half = rng.permutation(np.repeat([1, 0], length // 2))
        ids[row] = np.roll(half, -1 - int(np.cumsum(2 * half - 1).argmin()))  # start after the deepest point
    depth = np.cumsum(2 * ids - 1, axis=1)
    return ids, ((depth.min(axis=1) >= 0) & (depth[:, -1] == 0)).astype(np.int64)


def text_of(ids):
    return "".join("(" if i else ")" for i in ids)


for ids, label in zip(*brackets(4), strict=True):
    print(text_of(ids), "balanced" if label else "not")

# %%
config = models.ClassifierConfig(2, 2, d_model=32, n_heads=4, d_ff=64, n_layers=1, dropout=0.0)
classifier = models.Classifier(config, np.random.default_rng(0))
classifier_losses = train(classifier, lambda: (brackets(64), {}), steps=250)

# %% tags=["varies", "slide"]
ids, labels = brackets(1000)
right = show(classifier(on_device(ids))[0]).argmax(axis=-1) == labels
print(f"loss {classifier_losses[0]:.2f} -> {np.mean(classifier_losses[-20:]):.3f}")
print(f"right on {right.mean():.1%} of 1000 new ones")
plots.training_curve(range(1, 251), classifier_losses)

# %% [markdown]
# ⟦There are only $2^8 = 256$ texts of eight brackets, so "new" means little here: the model has seen them all.⟧ (How would you test
# whether it has learned the rule? Train on length 8, test on length 10. Try it.)
#
# ## 13.4 A decoder: invent numbers
#
# ⟦A language model learns from texts alone, without labels: predict the next token, everywhere.⟧ Here the texts are
# German numbers below 1000, split into their parts, `["drei", "hundert", "ein", "und", "zwanzig"]`.

# %%
task = NumberTask.draw(n_training=800, n_unseen=200, limit=1000, rng=np.random.default_rng(0))
texts = [task.target.encode(german(number)) for number in task.training]
print(len(task.target), "tokens; for example", german(task.training[0]), texts[0])


def next_token_batch(n=64):
    chosen = rng.choice(len(texts), n)
    ids = padded([[START, *texts[i]] for i in chosen])
    wanted = padded([[*texts[i], END] for i in chosen])  # the same, shifted by one
    return (ids, wanted), {"ignore_index": PAD}


(ids, wanted), _ = next_token_batch(2)
print(ids, "\n", wanted, sep="")

# %% [markdown]
# > ⟦**Predict first.** Even a perfect model of the numbers has a loss above zero. Why? Roughly how much per *text*, if
# > all 1000 numbers are equally likely?⟧

# %%
config = models.LanguageModelConfig(
    len(task.target), 16, d_model=48, n_heads=4, d_ff=96, n_layers=2, dropout=0.0, attention_dropout=0.0
)
language_model = models.LanguageModel(config, np.random.default_rng(0))
language_losses = train(language_model, next_token_batch, steps=200)

# %% tags=["samples", "slide"]
tokens_per_text = np.mean([len(text) + 1 for text in texts])
print(f"loss {language_losses[0]:.2f} -> {np.mean(language_losses[-20:]):.2f} nats per token")
print(f"the best possible if all 1000 numbers are equally likely: {np.log(1000) / tokens_per_text:.2f}")


def sample(n, length=10):
    ids = np.full((n, 1), START)
    for _ in range(length):
        logits = show(language_model(on_device(ids))[0])[:, -1].astype(np.float64)
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        drawn = (p.cumsum(axis=-1) > rng.random((n, 1))).argmax(axis=-1)
        ids = np.concatenate([ids, drawn[:, None]], axis=1)
    return [task.target.decode(row) for row in ids]


every_number = {tuple(german(number)): number for number in range(1000)}
written = sample(200)
proper = [every_number[tuple(text)] for text in written if tuple(text) in every_number]
unseen = set(proper) & set(task.unseen)
print(f"{len(proper)} of 200 are proper numbers; {len(unseen)} of them were never in its texts")
for text in written[:5]:
    print("  ", "".join(text), every_number.get(tuple(text), "(no number)"))

# %% [markdown]
# ⟦The best possible loss is the entropy of the texts: $\log 1000 \approx 6.9$ nats per text, divided among its tokens,
# 5.2 on average.⟧ Nobody told the model that German puts units before tens. It found the grammar, since the grammar makes the
# next token predictable, and it invents numbers that were never in its texts.
#
# ## 13.5 Encoder and decoder: translate
#
# ⟦English to German. The source is known in full, so it may be read in both directions; the target is written from left
# to right.⟧ Could a decoder alone do it? Yes, with source, separator and target as one text; large language models do
# this. Could an encoder? Not well: it has one output per input token, and German needs a different number of tokens in
# a different order.

# %%
sources = [task.source.encode(english(number)) for number in task.training]


def translation_batch(n=64):
    chosen = rng.choice(len(sources), n)
    source = padded([sources[i] for i in chosen])
    target = padded([[START, *texts[i]] for i in chosen])
    wanted = padded([[*texts[i], END] for i in chosen])
    return (source, target, wanted), {"source_mask": on_device(source != PAD), "ignore_index": PAD}


config = models.TransformerConfig(
    len(task.source),
    len(task.target),
    d_model=48,
    n_heads=4,
    d_ff=96,
    n_encoder_layers=1,
    n_decoder_layers=1,
    dropout=0.0,
    norm_order="pre",
    share_embeddings=False,
)
translator = models.Transformer(config, np.random.default_rng(0))
translator_losses = train(translator, translation_batch, steps=250)


# %% tags=["samples"]
def translate(numbers):
    source = on_device(padded([task.source.encode(english(number)) for number in numbers]))
    return [task.target.decode(row) for row in greedy(translator, source, source != PAD, START, END, max_length=12)]


right = [said == german(number) for said, number in zip(translate(task.unseen), task.unseen, strict=True)]
print(f"loss {translator_losses[0]:.2f} -> {np.mean(translator_losses[-20:]):.3f}")
print(f"{np.mean(right):.0%} of {len(right)} numbers never seen in training are translated without a mistake")
for number in (321, 754, 20):
    print(f"   {' '.join(english(number))}: {''.join(translate([number])[0])}")

# %% [markdown]
# > ⟦**Predict first.** While it writes "vier und fünfzig" for "fifty four", where will the cross-attention look? Sketch
# > the map.⟧

# %% tags=["varies", "slide"]
words, parts = english(754), german(754)
memory = translator.encode(on_device([task.source.encode(words)]))[0]
target = on_device([[START, *task.target.encode(parts)]])
weights = verify.values_inside("weights", translator.decode, target, memory)
plots.attention_maps(weights[-1][0], [*parts, "<end>"], words)

# %% [markdown]
# ⟦A row is the token being written (row "vier" is the position that predicts it).⟧ Not every head is so easy to read. The
# viewer shows all layers and heads, and for each weight the gradient of the chosen logit: a large weight does not
# always matter.

# %% tags=["varies"]
viewer.view(
    translator,
    task.source.encode(words),
    [START, *task.target.encode(parts)],
    names=[task.source.tokens, task.target.tokens],
)

# %% [markdown]
# ## Exercises

# %%
course.exercise("adam_step")


# %%
def adam_step(theta, g, m, v, t, learning_rate, beta1, beta2, eps):
    raise NotImplementedError


course.check("adam_step", adam_step)

# %%
course.exercise("warmup_schedule")


# %%
def warmup_schedule(steps, d_model, warmup):
    raise NotImplementedError


course.check("warmup_schedule", warmup_schedule)

# %%
course.exercise("encoder_layer_backward")


# %%
def encoder_layer_backward(params, saved, dy):
    raise NotImplementedError


course.check("encoder_layer_backward", encoder_layer_backward)

# %%
course.exercise("decoder_layer_backward")


# %%
def decoder_layer_backward(dy, pullbacks):
    raise NotImplementedError


course.check("decoder_layer_backward", decoder_layer_backward)
