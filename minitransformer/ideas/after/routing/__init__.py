"""Other ways to choose experts, an idea in one folder: op, layers, cases, mistakes, sentences, exercise, example, page.

The recipes of OLMoE, Qwen3 MoE, DeepSeek-V2 and DeepSeek-V3 use it.
"""

from .layer import SharedExperts, SigmoidRouting, SoftmaxRouting
from .op import sigmoid_gates, softmax_gates

__all__ = ["SharedExperts", "SigmoidRouting", "SoftmaxRouting", "sigmoid_gates", "softmax_gates"]
