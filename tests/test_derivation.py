"""Written derivations: right ones are accepted, wrong ones refused at their line, and nothing typed does harm."""

import re
import sys
import time
from pathlib import Path

import pytest
from tiers import in_one

from minitransformer import verify
from minitransformer.check.derivation.checking import Checker

RIGHT = {
    f"{path.stem}: {part.splitlines()[0]}": part.partition("\n")[2]
    for path in sorted((Path(__file__).parent / "derivations" / "right").glob("*.md"))
    for part in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}

ATTENTION = RIGHT["attention: in indices"].strip()


@pytest.mark.few(6)
@pytest.mark.parametrize("name", RIGHT)
def test_right_derivation_is_accepted(name: str) -> None:
    report = verify.derivation(RIGHT[name])
    assert report.ok and report.first_wrong is None, str(report)


SLIPS = [  # a right derivation, the line, what is typed there; in public.tsv also where the slip was seen
    line.split("\t")[:3]
    for table in ("public", "slips", "textbooks", "prose")
    for line in (Path(__file__).parent / "derivations" / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.few(8, slow=220)
@pytest.mark.parametrize(("name", "number", "typed"), SLIPS)
def test_slip_is_refused_at_its_line_and_no_other_line_is_blamed(name: str, number: str, typed: str) -> None:
    lines = RIGHT[name].splitlines()
    lines[int(number) - 1] = typed
    report = verify.derivation("\n".join(lines))
    assert report.first_wrong == int(number), str(report)
    assert {line.verdict for line in report.lines if line.number != int(number)} <= {
        "given",
        "words",
        "defines",
        "right",
    }


NAMED = [  # the same of two tables, and what is asked about the slip; a few have no such question so far
    each
    for table in ("textbooks", "prose")
    for line in (Path(__file__).parent / "derivations" / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
    if len(each := line.split("\t")) == 4
]


@pytest.mark.few(4, slow=120)
@pytest.mark.parametrize(("name", "number", "typed", "question"), NAMED)
def test_slip_is_named(name: str, number: str, typed: str, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.check.derivation.mending.SECONDS", 20.0)  # other tests run beside this one
    lines = RIGHT[name].splitlines()
    lines[int(number) - 1] = typed
    said = [line.repair for line in Checker(30.0).lines("\n".join(lines)) if line.number == int(number)]
    assert question in said, said


MENDED = [  # what is typed in attention, the question, and the known mistake
    ("      = sum_l dA_il A_il (δ_lj - A_il)", "Is it A_ij, not A_il?", ""),
    ("      = A_ij (dA_ij + sum_l dA_il A_il)", "Is the sign before sum_l dA_il A_il -, not +?", "softmax-sum-added"),
    ("      = A_ij dA_ij", "Is it A_ij (dA_ij - sum_l A_il dA_il), not A_ij dA_ij?", "softmax-no-sum"),
    ("dQ_ic = sum_j dS_ij K_jc", "Is the factor 1/sqrt(d) missing?", "attention-dq-not-scaled"),
    ("dQ_ic = dS_ij K_jc / sqrt(d)", "Is the sum over j missing?", ""),
    ("dV = A dO", "Is it Aᵀ, not A?", "attention-dv-not-transposed"),
    ("dV_jc = sum_i A_ji dO_ic", "Is it A_ij, not A_ji?", ""),
]


@in_one("typed, question, mistake", MENDED)
def test_small_change_is_asked_for(typed: str, question: str, mistake: str) -> None:
    report = verify.derivation(f"{ATTENTION}\n{typed}" if typed[0] != " " else _in_place_of_last_step(typed))
    (line,) = [line for line in report.lines if line.verdict == "wrong"]
    assert question in line.repair and line.mistake == mistake, str(report)
    assert line.repair in str(report) and line.repair.split()[0] in report._repr_html_()


def _in_place_of_last_step(typed: str) -> str:
    lines = ATTENTION.splitlines()
    lines[8] = typed
    return "\n".join(lines)


UNREAD = {  # what cannot be read or computed: a part of the sentence
    "given A: (n, m), B: (m, p)\nC = A B\nC_ij = sum_k Aik B_kj": "Is it A_ik? An index follows an underscore.",
    "given x: (n)\ny = foo x": "foo is not defined",
    "x = y\ny = x": "y is used here, but line 2 defines it",
    "given x: (n)\ny = (x": "the line ends too early",
    "given x: (n)\ny = x +* x": "expected: a name",
    "given x: (n)\ndx = 2 x": "gradient of a loss, but of which?",
    "given x: (n), dz: (n)\ny_i = x_i^2\ndx_i = 2 x_i": "dx",
    "given x: (1000000, 1000000)": "too large",
    "given x: (n), A: (n, n)\ny = (A - A)^{-1} x": "no inverse",
    "given x\ny = x^(10^(10^(10^10)))": "not finite",
    "given A: (n, m), A: (m, n)": "given or defined before",
    "given x: (n)\ny = " + "(" * 50 + "x" + ")" * 50: "50 deep",
    "given A: (n, n)\ny_i = A_{i,ij+1}": "'ij+1' cannot be read; write it like x_{i+1}",
    "given x: (n)\ny_i = y_{i+1} + y_{i-1} + x_i": "a recurrence goes one way",
    "given x: (n)\ny_{n-i} = x_i": "cannot be defined; write y_i",
    "given A: (n, n)\nB = A^2": "two meanings",
    "given a, b, c\ny = a / (b c)\ny = a / b c": "two readings",
    "given x: (n), s\ny_i = x_i / n s": "two readings",
    "given n\ny = 1/2n": "write /(2n)",
    "given x: (n), m\nv = mean(x - m)^2": "two readings",
    "\n" * 2000: "1000 are the limit",
    "given x: (n)\n" + "y = " + "x " * 5000: "2000 characters",
    "given x: (n)\nx_i (x_i - 1)": "no sign =",
    "given x: (n), dy: (n)\ny = relu(x)\ndx_i = dy_i where x_i is positive": "where is not defined",
    "given x: (n), dy: (n)\ny = relu(x)\ndx_i = dy_i for positive x_i": "for is not defined",
    "given x: (n)\n& = x": "no equation above that could be read",
    "\n".join(["= a " + "if " * 600] * 20): "no equation above that could be read",
    "given x: (n), W: (n, m), dy: (m)\ny_j = sum_i x_i W_ij\ndW = x ⊗ dy": "multiplies entries here",
    "given x: (n)\nif i = j: y_i = x_i": "Write the cases as one equation, with δ_ij",
    "__import__('os').system('ls') = 1": "not part of the notation",
    "given x: (n)\nf = sum(x ⊙ x)\n∇²f = 2 I": "Second derivatives cannot be read",
    "given x: (n)\ny = x.cumsum(0)": ".cumsum(...) is no function of the notation",
}


@in_one("text", UNREAD)
def test_what_cannot_be_read_gets_a_sentence_within_two_seconds(text: str) -> None:
    start = time.monotonic()
    report = verify.derivation(text)
    assert time.monotonic() - start < 4.0  # the promise is two; other tests run beside this one
    assert not report.ok and report.first_wrong is None
    assert any(UNREAD[text] in line.message for line in report.lines if line.verdict == "unreadable"), str(report)
    assert "cannot be tried" not in str(report)


@in_one("claim, sentence", [
    ("C_ij = A_ik B_kj", "The index k is free on the right alone: no sum runs over it."),
    ("C_ij = A_ik B_kj B_kj", "k stands there 3 times"),
    ("C_ij = sum_k A_ik", "The two sides differ"),
    ("C = B A", "The shapes (m, p) and (n, m) do not multiply in B A"),
    ("C_ij = sum_k A_ki B_kj", "The index k runs over n and, in B_kj, over m"),
    ("C_ijk = sum_k A_ik B_kj", "C has 2 axes, but 3 indices"),
    ("C = A", "The left side has the shape (n, p), the right side (n, m)"),
    ("C_ij = sum_k A_ik B_kj + 0.00000000001", "almost equal on all numbers tried, but not exactly"),
])  # fmt: skip
def test_wrong_line_says_what_is_wrong(claim: str, sentence: str) -> None:
    report = verify.derivation(f"given A: (n, m), B: (m, p)\nC = A B\n{claim}")
    assert report.first_wrong == 3 and sentence in report.lines[-1].message, str(report)


REFUSED = {  # what once passed, or would if one looked away; the line that must not
    "a bound that is seldom reached": "y_i = min(max(x_i, 0), 6)\ndx_i = dy_i 1[x_i > 0]",
    "a logarithm elsewhere": "h = sum_i log(z_i)\ny = relu(x)\ndx = dy",
    "a large constant": "y_i = tanh(x_i) - 1e9 z_i\ny_i = -1e9 z_i",
    "an entry by its number": "y = x ⊙ x\ndx_1 = 3 x_1 dy_1",
    "words in brackets that are factors": "y = x ⊙ x\ndx = 2 x ⊙ dy  (dy - z)",
    "an equation in brackets": "y = x ⊙ x\n(so dx = 3 x ⊙ dy)",
    "a box": "y = x ⊙ x\n\\boxed{dx = 3 x \\odot dy}",
    "another sign for =": "y = x ⊙ x\ndx ≡ 3 x ⊙ dy",
    "the indices of a known name exchanged": "B_ij = A_ij z_j\nB_ji = A_ij z_i",
    "a name that is called like a function": "s = f(x) = sum(x)\ns = g(x) = 2 sum(x)",
    "a derivative entry by entry": "y_i = tanh(x_i)\n∂y/∂x = 1 - y",
    "an equation between dollars": "y = x ⊙ x\n$dx$ = $3 x ⊙ dy$",
    "a bound that few numbers meet": "L = max(0, 3 - x^T z)\n∂L/∂x = -z 1[x^T z < 2]",
    "a bound of entries": "y_i = max(0, 2 - x_i)\ndx_i = -dy_i 1[x_i < 3]",
    "a condition behind a line": "y = relu(x)\ndx_i = dy_i for x_i < 0",
    "a function of a letter that is not given": "relu(t) = t",
    "a definition that stands below": "y = u ⊙ u, where u = 2 x\ndx = 4 x ⊙ dy",
    "words before a line": "The output is y = x ⊙ x.\nTherefore we simply get dx = 3 x ⊙ dy",
    "a left side on a line of its own": "y = x ⊙ x\n\\frac{\\partial L}{\\partial x}\n= 3 x ⊙ dy",
    "a loss beside an output": "y = x ⊙ x\nL = sum(y ⊙ y)\n∂L/∂x = 2 x ⊙ dy",
}
ASKED = {  # the same, where it cannot be decided: the report asks
    "the gradient of nothing": "y = x ⊙ x\ndX = 3 x ⊙ dy\ndx = 2 x ⊙ dy",
    "a tiny constant": "y = sqrt(sum(x ⊙ x) + 1e-12)\ny = sqrt(sum(x ⊙ x))",
    "a condition that never holds": "y = x ⊙ x\nif x_i > 900: dx_i = 7 dy_i",
    "a condition behind a line that never holds": "y = x ⊙ x\ndx_i = 7 dy_i if x_i = 0",
    "a tiny value": "y_i = 1e-15 tanh(x_i)\ny_i = 3e-15 tanh(x_i)",
    "a factor below the line": "y_i = exp(x_i) / sum_j exp(x_j) z_i",
    "a function without brackets": "y = sum(log z_i x_i)",
    "a product after a product of entries": "B = A ⊙ A A",
}
HOLES = REFUSED | ASKED


@in_one("name", HOLES)
def test_hole_is_closed(name: str) -> None:
    report = verify.derivation(f"given x: (n), z: (n), A: (n, n), dy: (n)\n{HOLES[name]}\n2 x = x + x")
    assert not report.ok and report.lines[-1].verdict == "right", str(report)
    (refused,) = [line for line in report.lines if line.verdict in ("wrong", "unreadable")]
    assert (refused.verdict == "unreadable") == (name in ASKED), str(report)


RATIONAL = ("dx = 2 A x dz", "∂z/∂x_i = 2 sum_j A_ij x_j", "y_i = 2 x_i/z\n∂y_i/∂x_j = 2 δ_ij/z - 2 x_i/z^2 ∂z/∂x_j")


@pytest.mark.parametrize("claim", RATIONAL)
def test_gradient_of_a_rational_function_is_exact(claim: str) -> None:
    start = "given A: (n, n) symmetric, x: (n), dz\nz = x^T A x\n"
    assert verify.derivation(start + claim).ok
    before, last = claim.rsplit(" 2 ", 1)
    almost = verify.derivation(f"{start}{before} 2.00000000000001 {last}")
    assert not almost.ok and "almost equal" in almost.lines[-1].message, str(almost)


def test_differentials_are_read_where_those_of_what_is_given_are_given_too() -> None:
    start = "given x: (n), A: (n, n), dx: (n)\nf = x^T A x\n"
    assert verify.derivation(start + "df = x^T (A + A^T) dx").ok
    assert verify.derivation(start + "df = 2 x^T A dx").first_wrong == 3
    assert "differential" in str(verify.derivation("given x: (n)\nL = x^T x\ndL = 2 x^T dx"))


LAYER = "given W: (k, m), z: (m), u: (k), b: (k), dy: (k)\n"
TURNS = {  # a line that takes a column for a row, and the repair; or a text that is right as books write it
    "cs.stackexchange.com/questions/30785": ("y = W z\ndz = dy W", "Is it Wᵀ dy, not dy W?"),
    "a product that is a row": ("y = W z\ndz = 2/2 dy^T W", "Is it (2 / 2 dyᵀ W)ᵀ, not 2 / 2 dyᵀ W?"),
    "rows, and a column": ("y = z W^T\ndz = W^T dy", "Is it dy W, not Wᵀ dy?"),
    "a name that is a row": ("y = W z\nr = y^T W\ns = r z\nq = r + z", ""),
    "both in one line": ("y = W z\nL = u^T y\n∂L/∂z = (∂L/∂y)^T W", "Is it Wᵀ ∂L/∂y, not (∂L/∂y)ᵀ W?"),
    "math.stackexchange.com/questions/838320": ("f = u^T W W^T u\n∂f/∂u = u^T (W W^T + (W W^T)^T)", None),
    "github.com/mml-book/mml-book.github.io/issues/465": ("f = u^T b\n∂f/∂u = b^T", None),
    "by a column, datascience.stackexchange.com/questions/76545": ("y = W z\ndz = W^T dy", None),
    "a row of derivatives, CS224n, gradient notes": (
        "y = W z + b\nh = tanh(y)\ns = u^T h\nδ = ∂s/∂y\n∂s/∂W = δ^T z^T\n∂s/∂z = δ W",
        None,
    ),
    "vectors of NumPy have no direction": ("y = W @ z\ndz = dy @ W", None),
}


@in_one("name", TURNS)
def test_column_does_not_equal_a_row(name: str) -> None:
    text, repair = TURNS[name]
    report = verify.derivation(LAYER + text)
    assert report.ok == (repair is None), str(report)
    if repair is not None:
        last = report.lines[-1]
        assert report.first_wrong == last.number and "a row" in last.message and last.repair == repair, str(report)


def test_definitions_are_taken_as_given_and_unusual_ones_are_told() -> None:
    start = "given S: (T, n), dA: (T, n)\nA_ij = exp(S_ij) / sum_k exp(S_kj)\nμ_i = mean_j S_ij\n"
    report = verify.derivation(start + "v_i = 1/(n - 1) sum_j (S_ij - μ_i)^2\nm_i = mean_j (S_ij - μ_i)^2\n2 m = m + m")
    assert report.ok and str(report).endswith("Definitions are taken as given: lines 2, 3, 4, 5.")
    assert [line.message[:22] for line in report.lines[1:5]] == [
        "Its columns sum to one",
        "",
        "This variance is divid",
        "",
    ]


def test_delta_that_is_the_derivative_of_nothing_is_told() -> None:
    start = "given X: (N, d), W: (d, h), V: (h, C), T: (N, C)\nz = X W\na = tanh(z)\ny = a V\nL = sum((y - T)^2)\n"
    report = verify.derivation(start + "δ_2 = 2 (y - T)\nδ_1 = (1 - tanh^2(y)) ⊙ δ_2\nδ_0 = (1 - tanh^2(z)) ⊙ δ_2 V^T")
    told = [line.message for line in report.lines[5:]]
    assert told == ["", "δ_1 is not the derivative of L by a name above. Is that meant?", ""]


def test_line_that_defines_a_wrong_gradient_under_another_name_is_told() -> None:
    start = "given x: (n), W: (m, n), g: (m)\na = W x\nh = tanh(a)\nL = g^T h\n"
    report = verify.derivation(start + "u = g ⊙ (1 - a ⊙ a)\n∂L/∂W = u x^T")
    assert report.first_wrong == 6 and report.lines[-1].repair == "Is it da, not u?"
    assert "Look at line 5, which defines u." in report.lines[-1].message, str(report)
    assert verify.derivation(start + "u = g ⊙ (1 - h ⊙ h)\n∂L/∂W = u x^T").ok


def test_line_that_follows_from_a_wrong_one_is_not_blamed() -> None:
    start = "given x: (n), dy: (n)\ny_i = x_i^3\ndx_i = 2 dy_i x_i^2\n"
    verdicts = [line.verdict for line in verify.derivation(start + "= 2 x_i dy_i x_i\n= 3 dy_i x_i^2").lines]
    assert verdicts == ["given", "defines", "wrong", "follows", "right"]
    last = verify.derivation(start + "= 3 dy_i x_i^2").lines[-1]
    assert last.message == "This line is right, although line 3 is not."


def test_mean_of_a_square_and_a_path_held_fixed_are_not_mixed_up() -> None:
    start = "given x: (n), dy: (n)\nm = mean(x)\nv = mean_i (x_i - m)^2\ny_i = (x_i - m) / v\n"
    report = verify.derivation(start + "∂v/∂x_i = 2/n (x_i - m)\n∂y_i/∂x_j = (δ_ij - 1/n) / v\nm = 0 v")
    assert [line.verdict for line in report.lines[4:]] == ["right", "wrong", "wrong"], str(report)


def test_letter_may_be_a_size_and_an_array() -> None:
    start = "given Q: (T, d), K: (S, d), dm: (T)\nwhere d = 64\nS = Q K^T\nm_i = 1/S sum_j S_ij\n"
    assert verify.derivation(start + "dS_ij = dm_i / S\ndQ = dS K").ok
    assert verify.derivation(start + "dS_ij = dm_i / T").first_wrong == 5


def test_new_name_that_looks_like_a_gradient_is_told() -> None:
    report = verify.derivation("given X: (n), dY: (n)\nY = X ⊙ X\ndx = dY\ndX = 2 X ⊙ dY")
    assert not report.ok and "Is it dX?" in report.lines[2].message and "cannot be read: line 3" in str(report)


WEIGHTS = "given A: (m, n), B: (n, p), C: (m, n), x: (n), W: (m, n), z: (n), Q: (n, n), dy: (m)\n"
READINGS = {  # what people type, and what is said of it
    "s_j = ∑i A_ij\nt_j = \\sum i A_ij\ns_j = t_j": "",
    "L = ∑ij A_ij\nL = sum over i,j of A_ij": "",
    "s_i = sum j≤i A_ij\ns_i = sum_{j≤i} A_ij": "",
    "D = A • B\nD = A B": "",
    "D = A · C\nD = A ⊙ C": "The dot is read as ⊙, entry by entry.",
    "s = x · z\ns = x^T z": "The dot is read as the plain product, a number for two vectors; for entries write ⊙.",
    "E = A ⊙ C\nE = A · C": "The dot is read as ⊙, entry by entry.",
    "y = W x\n∂y/∂x = W^T\ndx = ∂y/∂x dy": "So ∂y/∂x has a row for each entry of x in this text.",
    "y = W x\n∂y/∂x = W\ndx = (∂y/∂x)^T dy": "So ∂y/∂x has a row for each entry of y in this text.",
    "y = tanh(W x)\na = W x\nda = dy ⊙ (1 - y^2)": "",
    "y = W.T\ny^T = W": "",
    "D = 2 F, where F = C + C\nD = 4 C": "",
    "u = 2 x, h = g(u) = tanh(u)\n∂h_i/∂u_i = g'(u_i) = 1 - h_i²": "",
    "s_i = z_i if z_i > 0 else 0\ns_i = z_i for z_i > 0\ns_i = 0 (where z_i < 0)": "",
    "L = <x, z>\nL = x^T z ⇒ 2 L = x^T z + z^T x": "",
    "p_i = exp(z_i) / ∑_k exp(z_k)\n∂p_i/∂z_j = -p_i p_j for i ≠ j": "",
}
SHAPES = ("x, w: (n)", "x[n], w (n)", "x: (n,), w: (n,)", "x of shape (n), w = (n)", "We are given x, w ∈ R^n")
SHAPES += ("an input x ∈ R^n and weights w ∈ R^n", "x ∈ R^n, the rate is a number, and w of shape (n)")


@in_one("text", READINGS)
def test_what_people_type_is_read_and_a_choice_is_told(text: str) -> None:
    report = verify.derivation(WEIGHTS + text)
    assert report.ok and "".join(line.message for line in report.lines) == READINGS[text], str(report)


@pytest.mark.parametrize("shapes", SHAPES)
def test_shapes_as_people_give_them(shapes: str) -> None:
    assert verify.derivation(f"given {shapes}\ny_i = x_i w_i\ny = x ⊙ w".replace("given We", "We")).ok


def test_layout_of_a_square_jacobian_is_asked_for_and_one_text_has_one() -> None:
    square = verify.derivation(WEIGHTS + "y = Q x\n∂y/∂x = Q^T\n∂y/∂x = Q").lines
    assert [line.verdict for line in square[2:]] == ["unreadable", "right"] and "Write indices" in square[2].message
    assert verify.derivation(WEIGHTS + "y = W x\n∂y/∂x = W^T\n∂y/∂x = W").first_wrong == 4


def test_stride_is_a_whole_number_and_the_given_gradient_says_how_long_an_output_is() -> None:
    start = "given x: (n), w: (k), dy: (m), stride\ny_t = sum_j w_j x_{stride·t+j}\n"
    report = verify.derivation(start + "dw_j = sum_t dy_t x_{stride t+j}\ndx_i = sum_{t,j} dy_t w_j δ_{i,stride·t+j}")
    assert report.ok and "tried as 3" in report.lines[1].message, str(report)
    assert verify.derivation(start + "dw_j = sum_t dy_t x_{t+j}").first_wrong == 3
    assert "where a number s is given" in str(verify.derivation("given x: (n)\ny_t = x_{stride·t+1}"))


def test_known_definitions_are_asked_about() -> None:
    start = "given Q: (n, d), K: (n, d), V: (n, e), dO: (n, e)\n"
    for scores, told in (("", "not divided by √d"), ("/ d", "divided by d, not"), ("/ √d", "")):
        message = verify.derivation(f"{start}S = Q K^T {scores}\nA = softmax(S)").lines[2].message
        assert told in message and bool(told) == bool(message)
    report = verify.derivation(start + "O = softmax(Q K^T / √d) V\nDV = softmax(Q K^T / √d)^T dO")
    assert not report.ok and "Is it dV?" in report.lines[-1].message


def test_a_page_without_scipy_still_finds_the_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    start = "given S: (T, n), dA: (T, n)\nA = softmax(S)\n"
    report = verify.derivation(start + "dS = A ⊙ (dA - rowsum(dA))")
    assert report.first_wrong == 3 and report.lines[-1].repair == "Is the factor A missing at dA?", str(report)


def test_report_shows_itself() -> None:
    report = verify.derivation("given x: (n)\nwords < here\ny = x ⊙ x\ny = x")
    told = str(report)
    assert told.startswith("derivation: line 4 is wrong") and "the line gives" in told
    assert report.as_dict()["first_wrong"] == 4 and report.lines[-1].numbers is not None
    assert "<script>" not in verify.derivation("y = <script>")._repr_html_()
    with pytest.raises(AssertionError, match="line 4 is wrong"):
        report.assert_ok()
    with pytest.raises(TypeError, match="expected the text as a str"):
        verify.derivation(3)  # type: ignore[arg-type]
