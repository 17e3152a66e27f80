"""Scripts as users write them, for mypy. In a wrong one a comment names the kind of error that its line must get."""

RIGHT = {
    "check_an_op": """
import numpy as np
from minitransformer import ops, verify

rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
report = verify.gradients(ops.attention, q, k, v, causal=True)
print(report, report.ok, report.max_error, [row.name for row in report.rows])
report.assert_ok()
""",
    "check_a_pair": """
import numpy as np
from numpy.typing import NDArray
from minitransformer import verify


def forward(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return x * x, x


def backward(dy: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2.0 * x * dy


verify.check_gradients(verify.from_pair(forward, backward), np.ones(3))
found = verify.diagnose(verify.from_pair(forward, backward), "softmax")
print(str(found))
""",
    "continue_a_text": """
from minitransformer import generation, models, text

model, tokenizer = models.load("runs/shakespeare", models.LanguageModel), text.load("runs/shakespeare")
print([name for name, _ in models.load("any").parameters()])
start = tokenizer.encode("ROMEO:", special=True)
ids = generation.stream(generation.Continuation(model), start, 50, ends=tokenizer.ends)
print(tokenizer.decode([*start, *ids]))
(found,) = generation.generate(model, [start], 50, end=tokenizer.ends[0])
""",
    "train_by_hand": """
import numpy as np
from minitransformer import models, training

rng = np.random.default_rng(0)
config = models.LanguageModelConfig(vocabulary=7, max_length=5, d_model=4, n_heads=2, d_ff=6, n_layers=1)
model = config.build(rng)
optimizer = training.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
ids = rng.integers(0, 7, (2, 6))
for step in range(1, 11):
    model.zero_grad()
    loss, backward = model.loss(ids[:, :-1], ids[:, 1:], rng=rng)
    backward()
    norm: float = training.clip_gradient_norm(model.parameters(), 1.0)
    optimizer.step(training.cosine(step, 1e-3, 2, 10))
""",
    "an_exercise": """
import numpy as np
from numpy.typing import NDArray
from minitransformer import course


def softmax_backward(y: NDArray[np.float64], dy: NDArray[np.float64]) -> NDArray[np.float64]:
    return y * dy


print(course.exercises(), course.exercise("softmax_backward").hint())
print(course.check("softmax_backward", softmax_backward))
""",
    "step_and_view": """
import numpy as np
import minitransformer
from minitransformer import models, ops, viewer

recording = minitransformer.step(ops.softmax, np.array([0.0, 1.0]))
recording.to_html("softmax.html")
print(recording.to_json())
model = models.load("demo/model", models.Transformer)
viewer.view(model, np.array([[1, 2]]), np.array([[3]])).to_html("view.html")
""",
    "speed_and_cost": """
import numpy as np
from minitransformer import cost, fast, models

config = models.TransformerConfig(source_vocabulary=9, target_vocabulary=9)
print(cost.describe(config, batch=2, length=5).memory)
model = fast.accelerate(models.Transformer(config))
y, backward = fast.ops.softmax(np.zeros((2, 3)))
""",
}

HEAD = "import numpy as np\nfrom minitransformer import generation, models, ops, text, training, verify\n\n"
MODEL = "models.LanguageModelConfig(vocabulary=7).build()"
WRONG = {
    "a_name_that_is_not_there": 'models.lod("x")  # attr-defined',
    "a_module_in_place_of_a_path": "text.load(3)  # arg-type",
    "a_model_of_no_kind": 'generation.generate(models.load("runs/shakespeare"), [[1]], 5)  # arg-type',
    "a_kind_that_is_no_model": 'models.load("runs/even", "Classifier")  # call-overload',
    "a_side_of_another_name": 'text.load("runs/translator", "german")  # arg-type',
    "a_report_of_another_name": "verify.gradients(ops.relu, np.ones(3)).okay  # attr-defined",
    "an_optimiser_without_a_rate": f"training.Muon({MODEL}.parameters())  # call-arg",
    "the_pullback_forgotten": "y: np.ndarray = ops.softmax(np.ones(3))  # assignment",
    "a_text_in_place_of_ids": f'generation.generate({MODEL}, "ROMEO:", 50)  # arg-type',
}
WRONG = {name: f"{HEAD}{line}\n" for name, line in WRONG.items()}
