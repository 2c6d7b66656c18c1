"""Chat templates against plain Jinja, and programs that take too much time or memory."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from rlx.llm.tokenizer.chat_template import render
from rlx.support.errors import Error

jinja2 = pytest.importorskip("jinja2")

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Wetter in <é> & 'x'",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "n": 3}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.  "},
    {"role": "user", "content": "Weather? <b> 日本"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "content": '{"t": 3}'},
    {"role": "assistant", "content": "<think>\na\n</think>\n\n3 °C"},
    {"role": "user", "content": [{"type": "text", "text": "ok"}]},
]
# The constructs that templates of published models use.
TEMPLATES = (
    """{%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
    {%- for message in messages[1:] %}
        {%- if message.content is string %}
            {%- set content = message.content %}
        {%- else %}
            {%- set content = '' %}
        {%- endif %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' }}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- content | trim }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>' }}{{ call.function | tojson }}{{ '</tool_call>' }}
        {%- endfor %}
        {%- if loop.last %}{% break %}{% endif %}
    {%- endfor %}
    {% if add_generation_prompt %}
<|im_start|>assistant
    {%- endif %}
""",
    """{{ bos_token }}{% set ns = namespace(system='', found=false, parts=[]) %}
{% for m in messages %}
    {% if m['role'] == 'system' %}{% set ns.system = ns.system ~ m['content'] %}{% set ns.found = true %}{% endif %}
    {% set ns.parts = ns.parts + [m.role, loop.index0] %}
{% endfor %}
{{ ns.system.strip() }} {{ ns.found }} {{ ns.parts | join(',') }} {{ ns.parts }}
{% macro describe(value, indent=2) -%}
    {%- if value is mapping -%}
        {%- for key, entry in value.items() %}{{ key }}:{{ describe(entry, indent + 2) }};{% endfor -%}
    {%- elif value is sequence and value is not string -%}
        [{% for entry in value %}{{ describe(entry) }}{{ ', ' if not loop.last }}{% endfor %}]
    {%- else -%}
        {{ value | string | upper }}
    {%- endif -%}
{%- endmacro %}
{{ describe(tools) }}
{% for tool in tools %}{{ tool | tojson(indent=4) }}{% endfor %}
{% generation %}{{ eos_token }}{% endgeneration %}
""",
    """{{ messages | map(attribute='role') | list }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | join(' / ') }}
{% for a, b in [(1, 2), (3, 4)] %}{{ a * b + a ** 2 - b % 3 }} {{ '%s-%03d' % (a, b) }} {{ '{:>4}|{}'.format(a, b) }}
{% endfor %}
{{ 'a-b' | replace('-', '+') }} {{ 'abc'[::-1] }} {{ 'a\\nb' | indent(2) }} {{ ['b', 'a'] | sort }} {{ {'k': [1, none, true]} }}
{{ tools | tojson(ensure_ascii=true) }} {{ range(3) | sum }} {{ 'x' * 3 }} {{ [1] * 2 + [3] }} {{ 7 // 2 }} {{ 3.5 | round }}
{% filter upper %}x{{ undefined_value }}{% endfilter %}{% set long %}{{ 'y' }}{% endset %}{{ long }}{{ missing is defined }}
{{ 'Abc'.startswith('A') and 'abc'.title() }} {{ dict(a=1).get('b', 2) }} {{ messages[-1].content[0]['text'] }}
{{ 'a,b'.split(',') }} {{ ' '.join(['x', 'y']) }} {{ '5'.zfill(3) }} {{ 'ab'.center(6, '*') }} {{ 'aXa'.replace('X', '-') }}
""",
)


def plain(template: str, variables: dict[str, Any]) -> str:
    """Return the text that Jinja itself gives for a template, without a sandbox."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent
    )
    for tag in ("generation", "endgeneration"):
        template = template.replace(f"{{% {tag} %}}", "")
    return environment.from_string(template).render(**variables)


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_the_text_is_that_of_jinja(template: str, add_generation_prompt: bool) -> None:
    variables = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "tools": TOOLS,
        "add_generation_prompt": add_generation_prompt,
    }
    expected = plain(template, {**variables, "messages": MESSAGES})
    assert len(expected) > 200
    assert render(template, MESSAGES, variables) == expected


def test_transformers_agrees() -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    for template in TEMPLATES:
        variables = {"bos_token": "<s>", "eos_token": "</s>", "documents": None, "add_generation_prompt": True}
        expected, _ = utils.render_jinja_template([MESSAGES], tools=TOOLS, chat_template=template, **variables)
        # transformers adds names of other fields to messages: these templates do not print whole messages.
        assert render(template, MESSAGES, {**variables, "tools": TOOLS}) == expected[0]


def test_json_keeps_html_and_other_scripts() -> None:
    text = render(
        "{{ x | tojson }}{{ x | tojson(separators=(',', ':'), sort_keys=true) }}", [], {"x": {"b": "<é>", "a": 1}}
    )
    assert text == '{"b": "<é>", "a": 1}{"a":1,"b":"<é>"}'


def test_the_time_can_be_printed() -> None:
    assert render("{{ strftime_now('%Y') }}", [], {}) >= "2025"


HOSTILE = (
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ [1] * 10**9 }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
    "{{ range(10**12) | list }}",
    "{{ '%1000000000s' % 'x' }}",
    "{{ '%*s' % (1000000000, 'x') }}",
    "{{ '%.1000000000f' | format(1.0) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
    "{{ ('x' | attr('format'))(1) ~ ('{:1000000000}' | attr('format'))(1) }}",
    "{{ 'x'.center(10**9) }}",
    "{{ 'x' | center(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ 'x' | indent(10**9, true) }}",
    "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
    "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
    "{{ ('x' * 1000000).join(range(100000) | map('string')) }}",
    "{{ range(100000) | join('x' * 1000000) }}",
    "{{ range(100000) | map('center', 1000000) | list | length }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('aaaa') }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f(varargs, varargs) }}{{ varargs }}{% endmacro %}{{ f(1) }}",
    "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=(1,)) %}{% for i in range(100) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ ns.x == 1 }}",
    "{% set ns = namespace(x=1) %}{% for i in range(99) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, 1] | groupby(0) %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=2) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 2 ** 100000000 }}",
    "{{ (1).to_bytes(10**9, 'big') }}",
    "{{ 5 | round(-1000000000) }}",
    "{{ [1] | batch(10**9, 'x') | list }}",
    "{{ [1] | slice(10**9) | list }}",
    "{{ [[1]] | tojson(indent=10**9) }}",
    "{% set x %}{% for i in range(100000) %}{{ 'a' * 1000000 }}{% endfor %}{% endset %}",
    "{% for i in range(100000) %}{{ 'a' * 1000000 }}{% endfor %}",
    "{% for i in range(100000) recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{% macro f(x) %}{{ f(x[1:]) }}{% endmacro %}{{ f('x' * 8000000) }}",
    "{% for x in range(100000) %}{{ range(100000) | list | sort | length }}{% endfor %}",
    "{{ ('aa ' * 2000000).split(' ') | length }}",
    "{{ lipsum(n=10**9) }}",
    "{{ strftime_now('%d' * 100000) }}",
)


@pytest.mark.parametrize("template", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_templates_end_with_an_error(template: str) -> None:
    with pytest.raises(Error, match="the chat template failed"):
        render(template, [{"role": "user", "content": "a"}], {})


FAILING = [
    ("{{ raise_exception('no tools') }}", "the chat template failed: no tools"),
    ("{{ nothing.x }}", "'nothing' is undefined"),
    ("{{ 1 + 'a' }}", "unsupported operand"),
    ("{{ messages.append(1) }}", "unsafe"),
    ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ("{{ [].__class__.__base__.__subclasses__() }}", "unsafe"),
    ("{% include 'x' %}", "the chat template failed"),
    ("{{ 'a'.translate({97: 'b'}) }}", "'translate' of a string, which is not available"),
    ("{% if %}", "the chat template is not valid in line 1"),
    ("\n{{ 'a' | nothing }}", "the chat template is not valid in line 2: No filter named 'nothing'"),
    ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    ("{{ " + "+".join(["1"] * 20000) + " }}", "nested too deeply"),
    ("a" * (1 << 18), "has 262144 characters, and at most 131072"),
]


@pytest.mark.parametrize(("template", "message"), FAILING, ids=range(len(FAILING)))
def test_exceptions_of_a_template_are_errors(template: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        render(template, [{"role": "user", "content": "a"}], {})


@pytest.mark.parametrize("messages", ["text", {"role": "user"}, [1], None, ["a"]])
def test_messages_are_dictionaries(messages: Any) -> None:
    with pytest.raises(Error, match="messages"):
        render("x", messages, {})


def test_the_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": "a"}]
    render("{% for m in messages %}{{ m.pop }}{% endfor %}", messages, {})
    assert messages == [{"role": "user", "content": "a"}]


def test_long_conversations_are_within_the_limits() -> None:
    messages = [{"role": "user", "content": "word " * 400}] * 500  # a million characters
    template = (
        "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text + m.content | trim %}"
        "{% endfor %}{{ ns.text }}{% for m in messages %}{{ m.role + m.content.split('</think>')[-1] }}{% endfor %}"
    )
    assert len(render(template, messages, {})) > 1_900_000


def test_limits_belong_to_one_rendering() -> None:
    """A rendering in another thread does not share the time of this one."""
    results: list[str] = []

    def run() -> None:
        results.extend(render("{{ 'a' * 1000000 }}", [], {})[:1] for _ in range(100))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["a"] * 300


def test_a_call_within_a_rendering_has_limits_of_its_own() -> None:
    def inner() -> str:
        return render("{{ 'b' * 3 }}", [], {})

    assert render("{{ f() }}{{ f() }}", [], {"f": inner}) == "bbbbbb"
