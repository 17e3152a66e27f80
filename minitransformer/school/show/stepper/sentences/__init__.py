"""One sentence for a step: what happens, why, and what to look at.

The lines of the library's ops, and those of its layers that do more than call, have sentences in the text files here:

    @ core.ops.softmax:softmax
    largest: The largest number of each row of `x` will be subtracted: that changes no weight, ...

"@ module:call" opens a section for the lines of a function and of its pullback. Each sentence follows the
beginning of its line, as much of it as identifies the line; if several fit, the longest counts. It may continue on
indented lines. It names in backticks only variables that its line has.

A sentence may depend on the run. "y if bias is None: ..." counts only where the recorded names make it true, and then
before one without a condition. {d_k} in a sentence is the number that this expression had.

Every other line gets a sentence for its kind: a call, a pullback, a head, a check. So do the lines of your own code.
"""

import ast
import functools
import inspect
import re
import textwrap
from importlib import resources

from .....check.trace.calls import Call
from .....core.arrays import rooms
from ..expressions import Applied, Expression, Name, NotExpandable, names, read
from ..paper import paper
from ..steps import Step, Steps
from ..symbols import symbols_of
from ..terms import readable
from ..walk import Walk, walk_of

_QUIET = {
    ast.Return: "The call ends and hands its result back.",
    ast.Assert: "A check: what must hold here.",
    ast.Raise: "A check found something wrong.",
    ast.Expr: "A check that computes nothing: bad arguments stop here, with a message that says what is wrong.",
}
_LIBRARY = "minitransformer/"
_NAMED: dict[type[ast.AST], str] = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg"}  # where a node has its name


def sentence_of(recording: Steps, step: Step) -> str:
    """The sentence for a step; names of its line stand in backticks."""
    call = recording.calls[step.call]
    is_head = step is recording.steps_of(call)[0] and call.code.co_name != "<lambda>"
    rules = (_upstream, _written, _head) if is_head else (_upstream, _renamed, _written, _called, _by_kind)
    return next(told for rule in rules if (told := rule(recording, step))) + _jacobian(recording, step)


def _jacobian(recording: Steps, step: Step) -> str:
    """What J in the formula stands for, or ""."""
    pullbacks = [call for call in recording.calls_in(step) if call.backward]
    formula = paper(recording, step) if pullbacks else None
    written = [] if formula is None else [part for part in formula.iter() if len(part) > 1 and part[0].text == "J"]
    if len({"".join(part.itertext()) for part in written}) > 1:
        return " Each J is the Jacobian of the map that its index names, never formed."
    made = dict.fromkeys(_mapped(recording, recording.calls[call.forward_call]) for call in pullbacks)
    return f" J: the Jacobian of {' and of '.join(made)}, never formed." if written else ""


def _mapped(recording: Steps, maker: Call) -> str:
    """What a call is in words: its name or, for a helper, what it made."""
    around = recording.step_around(maker)
    made = [] if around is None or not recording.is_helper(maker) else [b.name for b in around.bound]
    if not made or not maker.name.rpartition(".")[2].startswith(("_", "project")):
        return recording.words_for(maker)
    return f"the map to {' and '.join(name.replace('_', ' ') for name in made)}"


def names_of(step: Step) -> frozenset[str]:
    """The variables that a line has: those that it reads, those that it binds, and attributes."""
    return _names_in(step.source) | {bound.name for bound in step.bound}


@functools.lru_cache(maxsize=1024)
def _names_in(source: str) -> frozenset[str]:
    statement = read(source).node or read(f"{source.rstrip()}\n    pass").node
    nodes = ast.walk(statement) if statement is not None else ()
    return frozenset(getattr(node, _NAMED[type(node)]) for node in nodes if type(node) in _NAMED)


def _written(recording: Steps, step: Step) -> str:
    """The sentence in the text files, or ""."""
    call = recording.calls[recording.calls[step.call].forward_call]
    _, found, file = call.file.replace("\\", "/").rpartition(_LIBRARY)
    name = call.name.removesuffix(" in backward")
    section = sections().get(f"{file.removesuffix('.py').replace('/', '.')}:{name}", {}) if found else {}
    fitting = [key for key in section if _begins(step.source, key.partition(" if ")[0])]
    if not fitting:
        return ""
    in_use = any(" if " in key or "{" in section[key] for key in fitting)  # conditions and numbers need the values
    bound = {b.name: b.value.plain() for b in step.bound} if in_use else {}
    names = recording.names_before(step) | step.other | bound if in_use else {}
    holding = [key for key in fitting if " if " not in key or eval(key.partition(" if ")[2], names)]
    told = section[max(holding, key=lambda key: (len(key.partition(" if ")[0]), " if " in key))] if holding else ""
    return re.sub(r"\{(.+?)\}", lambda match: readable(float(eval(match[1], names))), told)


def _begins(source: str, key: str) -> bool:
    whole_word = not (key[-1].isidentifier() and source[len(key) : len(key) + 1].isidentifier())
    return source.startswith(key) and whole_word


@functools.cache
def sections() -> dict[str, dict[str, str]]:
    """The text files: by section, and in it by the beginning of the line, with its condition. Raises ValueError for an
    unreadable line.
    """
    found: dict[str, dict[str, str]] = {}
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".txt"):
            _read(file.read_text(encoding="utf-8"), file.name, found)
    for plugged in rooms.files("sentences.txt"):  # ideas that plug in bring their own
        _read(plugged.read_text(encoding="utf-8"), f"{plugged.parent.name}/{plugged.name}", found)
    return found


def _read(text: str, where: str, found: dict[str, dict[str, str]]) -> None:
    section: dict[str, str] = {}
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("@ "):
            section = found.setdefault(line[2:], {})
        elif line.startswith("    ") and key:
            section[key] += f" {line.strip()}"
        elif line and not line.startswith("#"):
            key, colon, told = line.partition(": ")
            if not colon or key in section:
                raise ValueError(f"{where}, line {number}: expected a new beginning of a line and ': ', got {line!r}")
            section[key] = told


def _upstream(recording: Steps, step: Step) -> str:
    """Where the backward pass begins: what the loss is, and what a gradient is."""
    call = recording.calls[step.call]
    if not call.backward or call.parent is not None or step is not recording.steps_of(call)[0] or not step.bound:
        return ""
    given = step.bound[0]
    name = f"`{given.name}`"
    if given.value.shape != ():
        loss = (
            f"{name} is chosen: drawn at random, or given. It turns the output into one number, the "
            f"loss = Σ output ⊙ {name}, so {name} = ∂loss/∂output."
        )
    elif given.value.array is not None and given.value.array == 1.0:
        loss = f"The output is the loss itself, so {name} = ∂loss/∂loss = 1."
    else:
        loss = f"{name} is given, and the loss is {name} times the output."
    checked = " A finite difference nudges one number up and down and looks at the loss." if recording.report else ""
    return f"Backward begins. {loss} From here on dX means ∂loss/∂X, for every array X.{checked}"


def _head(recording: Steps, step: Step) -> str:
    """The first step of a call shows its arguments."""
    call = recording.calls[step.call]
    if call.backward:
        given = _listed([bound.name for bound in step.bound]) or "the gradient"
        say = "say" if len(step.bound) > 1 else "says"
        maker = _mapped(recording, recording.calls[call.forward_call])
        return f"In the backward pass {given} {say} how the loss changes with what {maker} returned."
    told = _without_marks(_first_sentence(_documentation(call)), names_of(step))
    if len(told.split()) < 2:
        return f"{recording.words_for(call)} is called with these arguments."
    is_sentence = told[0].isupper() and len(told.split()) > 3
    return told if is_sentence else f"{recording.words_for(call)}: {told}"


def outside_of(recording: Steps, step: Step) -> str:
    """What the caller calls the arguments and results that have another name there; "" where there are none."""
    found = [(bound.name, symbols_of(recording).outside(bound)) for bound in step.bound if bound.value.shape]
    said = [f"`{name}` is {there.name}" for name, there in found if there is not None and there.name not in (name, "_")]
    return f" For the caller, {' and '.join(said)}." if said else ""


def _documentation(call: Call) -> str:
    """The docstring of a function; of a layer, that of its class."""
    definition = read(textwrap.dedent("\n".join(call.source))).node
    text = ast.get_docstring(definition) if isinstance(definition, ast.FunctionDef) else None
    if text is not None and not text.startswith("Return"):
        return text
    layer = call.globals.get(call.name)
    return inspect.getdoc(layer) or "" if isinstance(layer, type) else ""


def _first_sentence(text: str) -> str:
    match = re.match(r"(.+?[.!?])(?:\s|$)", " ".join(text.split()))
    return match[1] if match else ""


def _without_marks(text: str, names: frozenset[str]) -> str:
    """Without the backticks around what the line does not have."""
    return re.sub(r"`([^`]*)`", lambda match: match[0] if match[1] in names else match[1], text)


def _renamed(recording: Steps, step: Step) -> str:
    """For a line that only gives an array another name, such as dropout that is switched off."""
    symbols = symbols_of(recording)
    read = names_of(step)
    seen = {name: bound for name, bound in recording.visible(step).items() if name in read}
    known = {symbols.first(bound).serial: name for name, bound in seen.items()}
    same = [(bound.name, known.get(symbols.first(bound).serial)) for bound in step.bound if bound.value.shape]
    if not same or any(other is None or other == name for name, other in same):
        return ""
    told = " and ".join(f"`{name}` is `{other}`" for name, other in same)
    return f"Nothing changes here: {told}, under another name."


def _called(recording: Steps, step: Step) -> str:
    """For a line that calls a function or a pullback."""
    walk = walk_of(recording, step)
    made = walk.statement.value
    if walk.statement.kind != "assign" or not isinstance(made, Applied):
        return ""
    call = walk.call_of(made)
    targets = names(walk.statement.targets[0])
    results = _listed([name for name in targets if name in {bound.name for bound in walk.step.bound}])
    given = _listed([part.id for part in made.parts if isinstance(part, Name) and _is_array(walk, part)])
    if call is None or not results:
        return ""
    many = " and " in results
    if call.backward:
        maker = _mapped(recording, recording.calls[call.forward_call])
        begin = f"from {given}, how the loss changes with its result, " if given else ""
        what = "what it was given" if many else "its input"
        return f"Chain rule, back through {maker}: {begin}to {results}, how the loss changes with {what}."
    return f"{recording.words_for(call)} computes {results}{f' from {given}' if given else ''}."


def _is_array(walk: Walk, part: Expression) -> bool:
    try:
        return bool(walk.shape(part))
    except NotExpandable:
        return False


def _by_kind(recording: Steps, step: Step) -> str:
    """For any other line, by what it is."""
    statement = read(step.source).node
    comment = re.search(r"\s#\s+(.+)$", step.source)
    because = f": {_without_marks(comment[1], names_of(step)).rstrip('.')}" if comment else ""
    results = _listed([bound.name for bound in step.bound])
    if step.source.startswith(("def ", "@")):
        return "A function is made here, with what it will need, and runs later."
    if isinstance(statement, ast.AugAssign) and ".grad" in ast.unparse(statement.target):
        return "A parameter's gradient is a sum: each use of the parameter adds its part."
    if isinstance(statement, ast.Return) and step is recording.steps[-1]:
        return "The backward pass ends with these gradients."
    if statement is None or not results:
        if statement is None or isinstance(statement, ast.If | ast.For | ast.With):
            return "A choice or a loop: the next lines depend on it."
        if isinstance(statement, ast.Assign):
            return "This line prepares a value that is not a number."
        return _QUIET.get(type(statement), "This line computes no number.")
    if all(bound.value.shape == () and not bound.value.dtype.startswith("float") for bound in step.bound):
        are = "are sizes or switches" if " and " in results else "is a size or a switch"
        return f"{results} {are}, which the next lines need{because}."
    if isinstance(statement, ast.Return):
        return f"What arrives as {results} is handed back unchanged."
    from_ = _listed(_read_by(statement, {bound.name for bound in step.bound}))
    return f"{results} {'are' if ' and ' in results else 'is'} computed{f' from {from_}' if from_ else ''}{because}."


def _read_by(statement: ast.stmt, bound: set[str]) -> list[str]:
    """The other names that a line reads by themselves, not as a function or a module."""
    nodes = list(ast.walk(statement))
    used = {node.func for node in nodes if isinstance(node, ast.Call)}
    used |= {node.value for node in nodes if isinstance(node, ast.Attribute)}
    return sorted({node.id for node in nodes if isinstance(node, ast.Name) and node not in used} - bound)


def _listed(names: list[str]) -> str:
    marked = [f"`{name}`" for name in names]
    return " and ".join([", ".join(marked[:-1]), marked[-1]]) if len(marked) > 1 else "".join(marked)
