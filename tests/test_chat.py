"""Chat templates that would take hours or all memory are refused, and long conversations are not."""

import time
import tracemalloc

import pytest

from minitransformer.ideas.published import chat
from minitransformer.ideas.published.chat import render

DOUBLED = "{%% set n = namespace(s='abababab') %%}{%% for i in range(60) %%}{%% set n.s = %s %%}{%% endfor %%}"
GREEDY = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops without a turn": "{% for a in range(9999) %}{% for b in range(9999) if false %}{% endfor %}{% endfor %}",
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "a recursive loop": "{% for x in [1] recursive %}{{ loop([1, 2]) if loop.depth < 90 }}{% endfor %}",
    "a long comparison": "{% set s = 'a' * 9999999 %}{% for i in range(9999) %}{{ 'b' in s }}{% endfor %}",
    "a tilde": DOUBLED % "n.s ~ n.s",
    "a sum": DOUBLED % "n.s + n.s",
    "a join": DOUBLED % "[n.s, n.s] | join",
    "a replacement": DOUBLED % "n.s.replace('a', n.s)",
    "lists in lists": DOUBLED % "[n.s, n.s]",
    "a power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "a product": "{{ 'x' * 10 ** 10 }}",
    "a width": "{{ 'x'.ljust(9999999999) }}",
    "a filter's width": "{{ 'x' | center(9999999999) }}",
    "a text again": "{% set s = 'a' * 9999 %}{% set t %}{% for i in range(9999) %}{{ s }}{% endfor %}{% endset %}",
    "its own text again": "{% for i in range(99999) %}" + "a" * 99999 + "{% endfor %}",
}


@pytest.mark.few(4)
@pytest.mark.parametrize("what", GREEDY)
def test_a_template_may_take_neither_long_nor_much_memory(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_SECONDS", 0.2)
    monkeypatch.setattr(chat, "_MOST", 10_000_000)
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"the chat template fails: .*it takes too long, or too much memory"):
        render(GREEDY[what], [], {})
    assert time.process_time() - begin < 3.0
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "form", ["{{ '%9999999d' % 1 }}", "{{ '{:9999999}'.format(1) }}", "{{ strftime_now('%9999d') }}"]
)
def test_a_template_may_not_hide_a_width_in_a_text(form: str) -> None:
    with pytest.raises(
        ValueError, match=r"the chat template fails: ValueError: .*(which is not allowed|without digits)"
    ):
        render(form, [], {})
    with pytest.raises(ValueError, match="300,000 characters, but may have at most 200,000"):
        render("a" * 300_000, [], {})


def test_a_long_conversation_is_well_within_the_limits() -> None:
    template = (
        "{% for m in messages if m.content %}{% if loop.first and m.role not in ['system', 'user'] %}"
        "{{ raise_exception('who?') }}{% endif %}{{ '<|' ~ m['role'] ~ '|>' + m.content | trim + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}" + "{# long #}" * 500
    )
    messages = [{"role": "user", "content": "hello " * 30}, {"role": "assistant", "content": "yes"}] * 500
    expected = "".join(f"<|{m['role']}|>{m['content'].strip()}\n" for m in messages) + "<|assistant|>"
    assert render(template, messages, {}) == expected
