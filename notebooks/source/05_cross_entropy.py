# %% [markdown]
# # 5 Cross-entropy, fused and not
#
# A language model gives a probability to every token of its vocabulary. Cross-entropy measures how surprised it was by
# the token that came. The backward pass of every training step begins here.
#
# After this hour you can
#
# - compute loss and gradient for three tokens in your head;
# - derive $p - \text{target}$ twice: through the softmax, and directly;
# - say why the two are fused, and what goes wrong with averages, ignored positions and label smoothing.
#
# You need: notebooks 3 and 4.

# %%
device = "numpy"  # on a GPU: "cupy"

import matplotlib.pyplot as plt
import numpy as np

from minitransformer import backend, course, ops, verify
from minitransformer.course import MISTAKES

xp = backend.get_device(device).xp
np.set_printoptions(precision=4, suppress=True)
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## Surprise
#
# ⟦$$L = -\ln p_{\text{wanted}}, \qquad p = \mathrm{softmax}(\text{logits})$$⟧
#
# ⟦If the wanted token had probability 1, the surprise is 0.⟧ At $\frac12$ it is $\ln 2$; towards 0 it grows without
# bound.

# %% tags=["slide"]
p = np.linspace(0.005, 1, 200)
plt.figure(figsize=(4, 2.4))
plt.plot(p, -np.log(p))
plt.xlabel("probability of the wanted token")
plt.ylabel("loss (nats)")
plt.show()

# %% [markdown]
# ⟦Our example again: logits $(\ln 1, \ln 2, \ln 4)$, so $p = \frac17 (1, 2, 4)$.⟧
#
# ⟦**Predict first.** What is the loss if token 2 is wanted? If token 0 is wanted? (Leave logarithms of whole numbers as
# they are.)⟧

# %% tags=["slide-code"]
logits = xp.log(xp.array([1.0, 2.0, 4.0]))
for target in (2, 0):
    loss, _ = ops.cross_entropy(logits[None], xp.array([target]))
    print(f"wanted {target}: loss {float(loss):.4f}")

# %% [markdown]
# ⟦$\ln 7 - \ln 4 = 0.5596$ and $\ln 7 = 1.9459$.⟧

# %% [markdown]
# An untrained model gives each of the $V$ tokens a probability of about $\frac1V$, so its loss must start near $\ln V$.
# If yours does not, something is wrong before the first step.

# %%
for V in (10, 1000, 50257):
    loss, _ = ops.cross_entropy(xp.zeros((1, V)), xp.array([3]))
    print(f"V = {V:5}: loss {float(loss):7.4f}, e^loss = {float(np.exp(float(loss))):8.1f}")

# %% [markdown]
# $e^L$ is called the *perplexity*: a choice among that many equally likely tokens would be as surprising.
#
# ## Backward in two steps
#
# ⟦Token 0 is wanted, $L = -\ln p_0$. First step: the loss with respect to the probabilities,⟧
#
# ⟦$$dp_v = \frac{\partial L}{\partial p_v} = -\frac{1}{p_v} \text{ for the wanted } v, \text{ and 0 for the others}$$⟧
#
# Second step: through the softmax of notebook 4, $d\text{logits}_j = p_j \big( dp_j - \sum_v dp_v\, p_v \big)$.
#
# ⟦**Predict first**, on paper with $p = \frac17 (1, 2, 4)$: what is $dp$, what is the sum, what are the three entries of
# $d\text{logits}$?⟧
#: dp: (-7, 0, 0); the sum: -1; dlogits: (-6/7, 2/7, 4/7)

# %% tags=["slide"]
p, pullback = ops.softmax(logits)
dp = xp.array([-1.0, 0.0, 0.0]) / p
dlogits = pullback(dp)
print("dp           ", dp)
print("the sum      ", round(float((dp * p).sum()), 6))
print("dlogits      ", dlogits, " in sevenths", (7 * dlogits).round(6))

# %% [markdown]
# ⟦$d\text{logits} = \frac17 (-6, 2, 4)$. Compare with $p = \frac17 (1, 2, 4)$: only the entry of the wanted token
# differs, by exactly 1.⟧ In general, with $w$ for the wanted token: $dp_v\,p_v = -\delta_{vw}$, so the sum is $-1$, and
#
# ⟦$$d\text{logits}_j = p_j\, dp_j + p_j = -\delta_{jw} + p_j$$⟧
#
# ⟦$$\boxed{d\text{logits} = p - \text{target}}, \qquad \text{target} = (0, \dots, 1, \dots, 0)$$⟧
#
# The $\frac1p$ of the logarithm and the $p$ of the softmax cancel.
#
# ## Backward in one step
#
# ⟦Write the loss as a function of the logits, and there is nothing to cancel:⟧
#
# ⟦$$L = -\ln \frac{e^{x_w}}{\sum_j e^{x_j}} = \ln \sum_j e^{x_j} - x_w, \qquad
# \frac{\partial L}{\partial x_j} = \frac{e^{x_j}}{\sum_l e^{x_l}} - \delta_{jw} = p_j - \delta_{jw}$$⟧
#
# Both derivations give the same answer, and it has a simple meaning: **the gradient is what the model said minus what
# it should have said.** A step against it lowers every other logit in proportion to the token's probability, and raises
# the logit of the wanted token by as much as its probability falls short of 1.

# %% tags=["slide"]
_, backward = ops.cross_entropy(logits[None], xp.array([0]))
dlogits = backward()[0]
print("fused:", dlogits, " sum is zero:", bool(abs(dlogits.sum()) < 1e-12))

figure, axes = plt.subplots(figsize=(4, 2.2))
axes.bar(np.arange(3) - 0.2, backend.to_numpy(p), 0.4, label="p", color="lightgrey")
axes.bar(np.arange(3) + 0.2, backend.to_numpy(dlogits), 0.4, label="dlogits")
axes.axhline(0, color="black", lw=0.8)
axes.set(xticks=range(3), xlabel="token (0 is wanted)")
axes.legend()
plt.show()

# %% [markdown]
# ## Why fuse?
#
# ⟦On paper both ways agree. **Predict first:** what do they give for the logits $(0, 1000)$, if token 0 is wanted?⟧
#: in two steps, the loss: inf; in two steps, dlogits: (nan, nan); fused, the loss: 1000; fused, dlogits: (-1, 1)

# %% tags=["slide"]
far = xp.array([[0.0, 1000.0]])
with np.errstate(all="ignore"):
    p_far, far_backward = ops.softmax(far)
    dp_far = xp.array([[-1.0, 0.0]]) / p_far
    loss_far, dlogits_far = -xp.log(p_far[0, 0]), far_backward(dp_far)
print("in two steps: loss", float(loss_far), " dp", dp_far[0], " dlogits", dlogits_far[0])
loss, backward = ops.cross_entropy(far, xp.array([0]))
print("fused:        loss", float(loss), "            dlogits", backward()[0])

# %% [markdown]
# ⟦$p_0$ underflows to 0; $\ln 0 = -\infty$, $-1/0 = -\infty$, and $0 \cdot \infty$ is `nan`.⟧ Fused, nothing is ever
# divided by $p$: the loss is $\ln \sum_j e^{x_j} - x_w$, with the maximum subtracted first, and the gradient stays
# between −1 and 1.
#
# A warning: the fused gradient belongs to softmax and loss *together*. The backward pass of a softmax on its own must
# not use it:

# %%
for name in ("softmax-expects-cross-entropy", "softmax-takes-dy-for-target"):
    with MISTAKES[name].applied():
        ok = verify.gradients(ops.softmax, logits, intermediates=False).ok
    print(f"{'right' if ok else 'wrong'}: {MISTAKES[name].sentence}")

# %% [markdown]
# ⟦The converse mistake: `cross_entropy` takes **logits**. If you give it probabilities, softmax is applied twice.⟧
#
# ⟦**Predict first.** With $V = 3$ and a perfect prediction $p = (1, 0, 0)$: how small can the loss get?⟧
#: the smallest loss: 0.55

# %% tags=["slide-code"]
probabilities = xp.array([[1.0, 0.0, 0.0]])
loss, _ = ops.cross_entropy(probabilities, xp.array([0]))
print(f"{float(loss):.4f}")

# %% [markdown]
# ⟦It is $\ln(e + 2) - 1$. Training runs and the loss falls, but it never gets near 0.⟧ Many people have looked for the
# reason in their learning rate.
#
# ## Many positions: the mean
#
# ⟦A batch has $N$ positions, and the loss is their mean, so every gradient has a factor $\frac1N$:⟧
#
# ⟦$$d\text{logits}_n = \frac1N\, (p_n - \text{target}_n)$$⟧

# %%
batch = xp.log(xp.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]]))
loss, backward = ops.cross_entropy(batch, xp.array([0, 2]))
print(f"loss {float(loss):.4f}, the mean of ln 7 and ln(7/4) is {(np.log(7) + np.log(7 / 4)) / 2:.4f}")
print("14 dlogits:\n", (14 * backward()).round(6))

# %% [markdown]
# ⟦Forgetting the $\frac1N$, or dividing twice, is a frequent mistake, and training does not show it. **Predict first:**
# why does an optimiser such as Adam, which divides the gradient by its own running size, hide a wrong factor?⟧

# %% tags=["slide"]
g = xp.array([0.3, -0.02, 1.5])
for factor in (1.0, 100.0, 0.01):
    # Adam's first step, without its small epsilon
    first_step = factor * g / xp.sqrt((factor * g) ** 2)
    print(f"gradient times {factor:6}: first step {first_step}")
for name in ("cross-entropy-not-divided", "cross-entropy-divided-twice"):
    with MISTAKES[name].applied():
        ok = verify.gradients(ops.cross_entropy, batch, xp.array([0, 2]), intermediates=False).ok
    print(f"{name}: finite differences say {'right' if ok else 'wrong'}")

# %% [markdown]
# ⟦**Check gradients, not training curves.** (Whatever depends on the gradient's size, such as clipping its norm, does go
# wrong.)⟧
#
# ## Positions that do not count
#
# ⟦The sentences of a batch are padded to the same length.⟧ Padded positions must not count: neither in the loss, nor in
# the gradient, nor in $N$. In this library their target is −100.
#
# ⟦**Predict first.** Two positions have the logits $(\ln 1, \ln 2, \ln 4)$. At the first, token 0 is wanted; the second
# is padding. What are the loss and `dlogits`?⟧
#: the loss: 1.95; dlogits at the padding: (0, 0, 0)

# %% tags=["slide-code"]
loss, backward = ops.cross_entropy(batch, xp.array([0, -100]))
print(f"loss {float(loss):.4f}")
print("7 dlogits:\n", (7 * backward()).round(6) + 0.0)

# %% [markdown]
# ⟦The loss is $\ln 7$, and the padded position gets a gradient of zeros.⟧ The mistake to avoid is dividing by the number
# of all positions. Then a batch with much padding has a small loss and small gradients. If forward and backward make
# the same mistake, finite differences accept it:

# %%
rng = np.random.default_rng(0)
random_logits = backend.to_device(rng.normal(size=(4, 3)), device)
targets = xp.array([0, 2, -100, -100])
right_loss = float(ops.cross_entropy(random_logits, targets)[0])
with MISTAKES["cross-entropy-mean-over-ignored-too"].applied():
    ok = verify.gradients(ops.cross_entropy, random_logits, targets).ok
    loss = float(ops.cross_entropy(random_logits, targets)[0])
print("finite differences:", "right" if ok else "wrong")
print(f"loss {loss:.4f} in place of {right_loss:.4f}")

# %% [markdown]
# ## Label smoothing
#
# ⟦With the target (0, …, 1, …, 0) the loss can always be lowered by making the wanted logit still larger; the model is
# driven to certainty.⟧ *Attention Is All You Need* therefore spreads a little of the target, $\varepsilon = 0.1$, over
# all $V$ tokens:
#
# ⟦$$\text{target}_v = (1 - \varepsilon)\,\delta_{vw} + \frac{\varepsilon}{V}, \qquad L = -\sum_v \text{target}_v \ln p_v$$⟧
#
# The target still sums to one. The derivation needs nothing else, so again $d\text{logits} = p - \text{target}$.
#
# ⟦**Predict first.** $V = 5$, $\varepsilon = 0.1$. The wanted logit is $m$, the others 0. For which $m$ is the loss
# lowest, with $\varepsilon = 0$ and with $\varepsilon = 0.1$?⟧


# %% tags=["slide"]
def smoothed_loss(m, epsilon):
    logits = xp.array([[m, 0, 0, 0, 0]])
    return float(ops.cross_entropy(logits, xp.array([0]), label_smoothing=epsilon)[0])


margins = np.linspace(0, 10, 101)
plt.figure(figsize=(4.5, 2.6))
for epsilon in (0.0, 0.1):
    losses = [smoothed_loss(m, epsilon) for m in margins]
    plt.plot(margins, losses, label=f"ε = {epsilon}")
    print(f"ε = {epsilon}: lowest at m = {margins[int(np.argmin(losses))]:.1f}")
plt.xlabel("margin m of the wanted logit")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# ⟦Without smoothing there is no lowest point: a larger margin is always better.⟧ With smoothing the gradient vanishes
# where $p = \text{target}$, at the finite margin $m = \ln(0.92 / 0.02) = 3.83$. The loss there is not 0 but the entropy
# of the target. A smoothed loss cannot be compared with an unsmoothed one.
#
# Here is the whole op, with smoothing, ignored positions and an upstream gradient, checked against finite differences:

# %% tags=["varies"]
targets = xp.array([0, 2, -100, 1])
verify.gradients(ops.cross_entropy, random_logits, targets, label_smoothing=0.1)

# %% [markdown]
# ⟦Three ways to get the target of label smoothing wrong: (a) the gradient is not smoothed; (b) ε is spread over all
# tokens and not taken from the wanted one; (c) each of the $V$ tokens gets $\varepsilon / (V - 1)$. **Predict first:**
# what does each target sum to, for $\varepsilon = 0.3$ and $V = 3$? (All but one of the mistakes can be found from the
# sum.)⟧


# %% tags=["slide"]
def implied_target():
    _, backward = ops.cross_entropy(logits[None], xp.array([0]), label_smoothing=0.3)
    return p - backward()[0]


target = implied_target()
print(f"{target.round(4)} sums to {float(target.sum()):.2f}: right")
for name in ("forgotten", "mass", "over-others"):
    mistake = MISTAKES[f"cross-entropy-smoothing-{name}"]
    with mistake.applied():
        target = implied_target()
    print(f"{target.round(4)} sums to {float(target.sum()):.2f}:\n    {mistake.sentence}")

# %% [markdown]
# ## To remember
#
# - $d\text{logits} = (p - \text{target}) / N$, with $N$ the positions that count.
# - Fuse the two, because $\frac1p$ and $p$ cancel on paper but not in floating point.
# - `cross_entropy` takes logits. A softmax on its own knows nothing about the loss.
# - The loss of an untrained model starts near $\ln V$.

# %% [markdown]
# ## Exercises
#
# Your function is called with NumPy arrays of several sizes, so write `np`, not `xp`.
#
# ### 5.1 The loss

# %%
course.exercise("cross_entropy_forward")


# %%
def cross_entropy_forward(logits, targets):
    # your code here
    raise NotImplementedError


# %%
course.check("cross_entropy_forward", cross_entropy_forward)

# %% [markdown]
# ### 5.2 Backward, fused

# %%
course.exercise("cross_entropy_backward")


# %%
def cross_entropy_backward(logits, targets):
    # your derivation here
    raise NotImplementedError


# %%
course.check("cross_entropy_backward", cross_entropy_backward)

# %% [markdown]
# ### 5.3 Backward in two steps

# %%
course.exercise("cross_entropy_unfused_backward")


# %%
def cross_entropy_unfused_backward(p, targets):
    # your derivation here
    raise NotImplementedError


# %%
course.check("cross_entropy_unfused_backward", cross_entropy_unfused_backward)

# %% [markdown]
# ### 5.4 With label smoothing

# %%
course.exercise("label_smoothing_backward")


# %%
def label_smoothing_backward(logits, targets, epsilon):
    # your derivation here
    raise NotImplementedError


# %%
course.check("label_smoothing_backward", label_smoothing_backward)
