"""One notation of many: LaTeX and Unicode signs become the letters of grammar.lark."""

import re
import unicodedata

_LETTERS = (  # each word of LaTeX, and its letter or sign behind it
    "alphaα betaβ gammaγ deltaδ epsilonε zetaζ etaη thetaθ iotaι kappaκ lambdaλ muμ nuν xiξ piπ rhoρ sigmaσ tauτ "
    "upsilonυ phiφ chiχ psiψ omegaω GammaΓ DeltaΔ ThetaΘ LambdaΛ XiΞ PiΠ SigmaΣ PhiΦ PsiΨ OmegaΩ varepsilonε varphiφ "
    "varthetaθ ellℓ"
)
_WITH_SIGN = (
    "cdot· times· odot⊙ circ⊙ ast* partial∂ nabla∇ top⊤ intercal⊤ le≤ leq≤ ge≥ geq≥ ne≠ neq≠ lt< gt> in∈ lVert‖ rVert‖ "
    "Vert‖ lvert| rvert| vert| lbrace( rbrace) lbrack[ rbrack] langle⟨ rangle⟩ prime' mid| equiv= coloneqq= ldots… "
    "dots… cdots… star* infty∞ forall∀ otimes⊗ dagger†"
)
_LEFT_OUT = (
    "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr middle limits nolimits displaystyle textstyle "
    "nonumber notag bm bf rm hfill"
)
GREEK = {word[:-1]: word[-1] for word in _LETTERS.split()}
_SIGNS = {word[:-1]: word[-1] for word in _WITH_SIGN.split()} | dict.fromkeys(_LEFT_OUT.split(), "")
_SIGNS |= {"sum": " sum ", "prod": " prod ", "quad": " ", "qquad": " "}
_ACCENTS = {"bar": "\u0304", "overline": "\u0304", "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303"}
_ACCENTS |= {"widetilde": "\u0303", "dot": "\u0307", "vec": ""}
_FONTS = r"mathrm|operatorname\*?|mathbf|boldsymbol|bm|mathsf|mathit|mathcal|mathscr|mathtt|mathbb|pmb"
_FONTS += "|textbf|textit|textrm|text|mbox"
_GROUP = r"\s*(\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}|\\[A-Za-z]+|[^\s\\{}])"
_PLAIN = {"−": "-", "–": "-", "—": "-", "×": "·", "∗": "*", "⋅": "·", "•": "·", "∙": "·", "∘": "⊙", "⊗": "⊙", "÷": "/",
          "∑": " sum ", "Σ_": " sum _", "∏": " prod ",
          "√": " sqrt ", "⊤": "ᵀ", "ϵ": "ε", "ϕ": "φ", "≡": "=", ":=": "=", "≜": "=", "<=": "≤", ">=": "≥", "!=": "≠",
          "½": "(1/2)", "𝒟": "D", "ℒ": "L", "@": " "}  # fmt: skip
_BELOW = dict(zip("₊₋ᵢⱼₖₗₘₙₚₛₜₓₐₑₒᵣᵤᵥₕ₀₁₂₃₄₅₆₇₈₉", "+-ijklmnpstxaeoruvh0123456789", strict=True))
_ABOVE = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ˣⁿˢᶻ", "0123456789-+xnsz", strict=True))


def _accents(text: str) -> str:
    pattern = re.compile(rf"\\({'|'.join(_ACCENTS)})(?![A-Za-z]){_GROUP}")

    def accented(match: re.Match[str]) -> str:
        base = _bare(match[2])
        base = GREEK.get(base.lstrip("\\"), base) if base.startswith("\\") else base
        space = " " if re.search(r"\\[A-Za-z]+$", match.string[: match.start()]) else ""
        return space + base[:1] + _ACCENTS[match[1]] + base[1:]

    return pattern.sub(accented, text)


def _bare(group: str) -> str:
    return group[1:-1].strip() if group.startswith("{") else group


def _fonts(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        inner = _bare(match[2])
        space = " " if re.search(r"\\[A-Za-z]+$", match.string[: match.start()]) else ""
        if inner == "1":
            return "𝟙" if match[1] == "mathbb" else "𝟏"
        if match[1] in ("text", "mbox", "textrm") and (" " in inner.strip() or not re.fullmatch(r"[\w\s-]*", inner)):
            return " "  # words
        tight = len(inner) == 1 or "_" in text[max(0, match.start() - 2) : match.start()]
        return space + inner.replace("-", "") + ("" if tight else " ")

    return re.sub(rf"\\({_FONTS})(?![A-Za-z]){_GROUP}", plain, text)


def _fraction(match: re.Match[str]) -> str:
    above, below = _bare(match[1]), _bare(match[2])
    if above in ("\\partial", "∂"):
        return f" ∂/({below}) "  # an operator
    if above in ("d", "\\mathrm{d}") and below.startswith(above):
        return f" ∂/(∂ {below.removeprefix(above)}) "
    return f" (({above})/({below})) "


def _fractions(text: str, depth: int = 60) -> str:
    found, count = re.subn(rf"\\[dtc]?frac{_GROUP}{_GROUP}", _fraction, text)
    return _fractions(found, depth - 1) if count and depth else found


def outside(text: str, sign: str) -> list[int]:
    """Where a sign stands outside brackets and subscripts."""
    depth, places = 0, []
    for n, letter in enumerate(text):
        depth += (letter in "([{⟨") - (letter in ")]}⟩")
        if letter == sign and depth <= 0:
            places.append(n)
    return places


def from_latex(text: str) -> str:
    """A line of LaTeX in plain notation. What has no backslash comes back almost as it is."""
    if "\\" not in text and "&" not in text:
        return text
    text = re.sub(r"\\(begin|end)\s*\{[^{}]*\}(\{[^{}]*\})?|\\(label|tag\*?)\s*\{[^{}]*\}", " ", text)
    text = text.replace("\\{", "(").replace("\\}", ")").replace("\\|", "‖")
    text = re.sub(r"\\[,;:!> ]", " ", text).replace("&", " ")
    text = re.sub(rf"\\(?:under|over)brace{_GROUP}(?:\s*[_^]{_GROUP})?", lambda m: f"({_bare(m[1])})", text)
    for _ in range(4):
        before = text
        text = _accents(_fonts(text))
        if before == text:
            break
    text = re.sub(r"\\sqrt\s*(?!\s*[\[{])(\\[A-Za-z]+|.)", r"\\sqrt{\1}", text)
    text = re.sub(rf"\\sqrt{_GROUP}", lambda m: f" sqrt({_bare(m[1])})", text)
    text = _fractions(text)
    text = re.sub(rf"\\sqrt{_GROUP}", lambda m: f" sqrt({_bare(m[1])})", text)

    def sign(match: re.Match[str]) -> str:
        word = match[1]
        if word in _SIGNS:
            return _SIGNS[word]
        after = match.string[match.end() : match.end() + 1]
        return GREEK[word] + " " * (after != "_") if word in GREEK else f" {word} "

    text = re.sub(r"\\([A-Za-z]+)", sign, text)
    text = re.sub(r"_\{([^{}]*)\}", lambda m: "_{" + m[1].strip() + "}", text)
    text = re.sub(r"_([A-Za-zα-ω])(?=[A-Za-zα-ω]_)", r"_\1 ", text)  # x_iy_i is x_i y_i
    return re.sub(r"\^\s*(⊤|T)\s*(?=[A-Za-zα-ω])", r"^\1 ", text)  # x^Ty is xᵀ y


def _below(match: re.Match[str]) -> str:
    inside = "".join(_BELOW[letter] for letter in match[0])
    return "_{" + inside + "}" if set("+-") & set(inside) else "_" + inside


_OVER = r"([a-z](?:[ ,] ?[a-z]\b){1,2}|[a-z]{1,3}|[a-z]\s*(?:[≤≥≠<>]=?|!=)\s*[a-z])"


def _over_letters(match: re.Match[str]) -> str:
    """∑i A_ij is sum_i A_ij, if the letters are indices of what follows."""
    indices = "".join(re.findall(r"_(\{[^{}]*\}|\w+)", match.string[match.end() :]))
    letters = re.findall("[a-z]", match[1])
    return f" sum_{{{match[1].replace(' ', '')}}}" if set(letters) <= set(indices) else match[0]


def plain(text: str) -> str:
    """A line in the notation of grammar.lark."""
    text = unicodedata.normalize("NFC", from_latex(text))
    text = re.sub("ᵀ|⊤", "ᵀ", text)
    text = re.sub(r"\b(?:np|jnp|torch|F|math)\.(?=[a-z])|\.(?:values\b|item\(\)|detach\(\))", "", text)
    text = re.sub(r"\b([^\W\d]\w*)\.grad\b", r"d\1", text)
    text = re.sub(
        r"\^\{\s*(\(\w+\)|\[\w+\]|-\s*1?)\s*(?:ᵀ|T)\s*\}", lambda m: f"^{{{'-1' if m[1][0] == '-' else m[1]}}}ᵀ ", text
    )
    text = re.sub("[" + "".join(_BELOW) + "]+", _below, text)
    text = re.sub(r"_\{(\w),?:\}", r"_\1 ", text)  # P_{i:} is row i, and so is P_i
    text = re.sub(rf"(?:[∑Σ]|\bsum\b)(?:\s+over(?:\s+all)?)?\s*{_OVER}(?:\s+of\b)?(?=\s|\()", _over_letters, text)
    text = re.sub(r"δ([a-z]{2})(?![A-Za-z_])", r"δ_\1", text)
    text = re.sub(r"(?<![\w)])d/d([^\W\d]\w*)\s*(?=[\w(\[])", r"∂/(∂ \1) ", text)
    text = re.sub(r"\(d ([^()/]+)\)/\(d ([^()/]+)\)", r"(∂ \1)/(∂ \2)", text)  # dL/dx, with spaces behind d
    text = re.sub(r"\^\s*(\{\s*(T|ᵀ)\s*\}|\(\s*T\s*\)|ᵀ|T(?![\w]))", "ᵀ ", text)
    if re.search(r"\bvec\b", text):
        text = text.replace("⊗", "⊠")  # beside vec(X), the Kronecker product
    for sign, letter in _PLAIN.items():
        text = text.replace(sign, letter)
    text = re.sub(r"(?<=[\w)\]])\.(?:T\b|t\(\))", "ᵀ ", text)
    text = re.sub(r"\*\*", "^", text)
    text = re.sub("[" + "".join(_ABOVE) + "]+", lambda m: "^(" + "".join(_ABOVE[c] for c in m[0]) + ")", text)
    text = re.sub(r"\^\(([0-9])\)", r"^\1", text)
    text = re.sub(r"\|\|([^|]+)\|\|", r"‖\1‖", text)
    text = re.sub(r"‖([^‖]*)‖(_\{?[2F]\}?)?", r" norm(\1)", text)
    text = re.sub(r"\|([^|]*)\|", r" abs(\1)", text)
    text = re.sub(r"𝟙_\{([^{}]*[=<>≤≥≠][^{}]*)\}", r" [\1] ", text)
    text = re.sub(r"(𝟙|𝟏|𝕀|\b[1I])\s*(?=[\[{(](?:[^\[\](){}]|\([^()]*\))*[=<>≤≥≠])", " ", text)
    text = re.sub("𝟙|𝟏", " ones ", text)
    text = re.sub(r"(?<![\w.^])1\s+(?=1\s*ᵀ)", " ones ", text)
    text = re.sub(r"(sum|prod|ones)\s+_", r"\1_", text)
    text = re.sub(r"(sum_(?:\{[^{}]*\}|\w+)(?:\^(?:\{[^{}]*\}|\w+))?)\s*-", r"\1 (-1) ", text)
    text = re.sub(r"⟨((?:[^⟨⟩,{}]|\{[^{}]*\})*),([^⟨⟩]*)⟩(?:_\{?F\}?)?", r" sum((\1) ⊙ (\2)) ", text)
    return unicodedata.normalize("NFC", text)
