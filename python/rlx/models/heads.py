"""The choice of the head of a checkpoint: by the class in `config.json`, by its tensors, or by the caller."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.ir.op.attributes import suggestion
from rlx.models.checkpoint import ModelTensors, ParameterPrefix
from rlx.models.family import ModelFamily, TaskHead
from rlx.models.fields import Fields
from rlx.support.errors import Error, UnsupportedError

AUTO = "auto"
FALLBACK = 'rlx.models.load(path, fallback="torch") uses the class of the transformers package'
# The name of a class, and its end. Classes with other heads, such as GPT2ValueHeadModel, do not count as base models.
_CLASS = re.compile(
    r"\w*?((?:With)?(?:LM|Double)Heads?Model|For[A-Z]\w*|[A-Z][a-z]+Heads?Model|(?<=Marian)MTModel|(?<!Head)(?<!Heads)Model)"
)
_LANGUAGE_HEADS = ("LMHeadModel", "ForConditionalGeneration")  # other ends of classes with the head `ForCausalLM`
_OPTIONS = ("batch", "sequence", "attention_mask", "activations")


def choose_head(fields: Fields, family: ModelFamily, tensors: ModelTensors, head: str | None) -> str | None:
    """Return the end of the name of the class whose head is used; None for the base model.

    Args:
        fields: `config.json`.
        family: The family.
        tensors: The tensors of the folder.
        head: The choice of the caller: `AUTO`, the end of the name of a class, or None.

    Raises:
        Error: `head` is not a head of the family, or more than one head fits a file that does not name its class.
        UnsupportedError: The class in the file has a head that is not supported.
    """
    if head is None:
        return None
    if head != AUTO:
        return _known(family, head)
    found = [name for name, own in family.heads.items() if _has_all(tensors, own)]
    name = class_of(fields)
    kind = None if name is None else _kind(family, name)
    if name is None or kind is None:
        return _fitting(fields, family, tensors, found, name)
    if kind == "Model":
        if found:
            _warn(
                f"{fields.file} names {name}, a model without a head, but the weights have "
                f"{_listed(tensors, family.heads[found[0]])}; the graph ends with the base model. "
                f"rlx.models.load(path, head={found[0]!r}) loads the head"
            )
        return None
    if kind == family.default_head:
        return kind
    if kind not in family.heads:
        raise UnsupportedError(
            f"{fields.file} names {name}, whose head '{kind}' is not supported for a {family.model_type}; "
            f"known are {', '.join(_names(family))}",
            hint=f"{FALLBACK}; rlx.models.load(path, head=None) loads the base model without the head",
        )
    if not any(tensors.find(f"{layer}.weight") for layer in family.heads[kind].layers):
        _warn(
            f"{fields.file} names {name}, but the weights have no head, no '{family.heads[kind].layers[0]}.weight'; "
            "the graph ends with the base model. rlx.models.load(path, head=None) asks for this"
        )
        return None
    return kind


def class_of(fields: Fields) -> str | None:
    """Return the name of the class in a `config.json`; None if it has none.

    Raises:
        Error: The field is not a list of names.
    """
    names = fields.data.get("architectures")
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise fields.refusal("architectures", 'a list with the name of a class, such as ["BertForMaskedLM"]')
    return names[0]


def head_of_class(name: str) -> str | None:
    """Return the end of the name of a class that is its head; None for base models and other names."""
    match = _CLASS.fullmatch(name)
    return None if match is None or match[1] == "Model" else match[1]


def _kind(family: ModelFamily, name: str) -> str | None:
    """Return the end of the name of a class, which is that of its head; `"Model"` for none, None for other names."""
    match = _CLASS.fullmatch(name)
    if match is None:
        return None
    kind = match[1]
    if kind == family.default_head:  # ForConditionalGeneration of an encoder–decoder model
        return kind
    if kind.endswith("HeadsModel"):
        return "DoubleHeadsModel"
    if kind == "MTModel":  # MarianMTModel
        return "ForConditionalGeneration"
    return "ForCausalLM" if kind.endswith(_LANGUAGE_HEADS) else kind


def _known(family: ModelFamily, head: object) -> str:
    kind = (_kind(family, head) or head) if isinstance(head, str) else head
    if not isinstance(kind, str) or kind not in _names(family):
        known = ", ".join(repr(name) for name in _names(family))
        raise Error(
            f"head must be {AUTO!r}, None or a head of a {family.model_type}{suggestion(str(head), _names(family))}: "
            f"{known or 'it has none'}; got {head!r:.80}"
        )
    return kind


def _names(family: ModelFamily) -> list[str]:
    return ([family.default_head] if family.default_head else []) + list(family.heads)


def _has_all(tensors: ModelTensors, head: TaskHead) -> bool:
    return all(tensors.find(f"{layer}.weight") is not None for layer in head.layers)


def _listed(tensors: ModelTensors, head: TaskHead) -> str:
    return ", ".join(f"'{weight.name}'" for n in head.layers if (weight := tensors.find(f"{n}.weight")) is not None)


def _fitting(
    fields: Fields, family: ModelFamily, tensors: ModelTensors, found: list[str], name: str | None
) -> str | None:
    """Return the head whose tensors are in a file that names no known class."""
    if family.default_head and (tensors.find("lm_head.weight") is not None or not found):
        return family.default_head
    layers = {n: set(family.heads[n].layers) for n in found}
    whole = [n for n, own in layers.items() if not any(own < other for other in layers.values())]
    if len(whole) > 1:
        given = (
            "names no class in 'architectures'" if name is None else f"names the class {name!r:.80}, which is not known"
        )
        first = family.heads[whole[0]]
        raise Error(
            f"{fields.file} {given}, and the weights have {_listed(tensors, first)}: the head of more than one task",
            hint=f"rlx.models.load(path, head=…) with one of {', '.join(map(repr, whole))}, or None for the base model",
        )
    return whole[0] if whole else None


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def family_with_head(family: ModelFamily, name: str) -> ModelFamily:
    """Return the family whose graphs end with a head."""
    head, states = family.heads[name], family.states or family.build

    def build(scope: ParameterPrefix, config: Any, sizes: Mapping[str, Any]) -> dict[str, Tensor]:
        if not head.has_pooler and scope.checkpoint is not None:
            scope.checkpoint.leave_out("pooler")
        outputs = states(scope, config, {**family.sizes, **sizes})
        with scope.g.named("head"):
            return head.build(scope, config, outputs["last_hidden_state"])

    options = {name: family.sizes[name] for name in _OPTIONS if name in family.sizes}
    return replace(family, build=build, sizes=options, prediction_head=None)


def read_labels(fields: Fields, tensors: ModelTensors, head: TaskHead | None) -> dict[int, str]:
    """Return the names of the labels by number, as in `id2label`; without that field, `LABEL_0`, `LABEL_1`, ….

    Raises:
        Error: The field does not have a name for each row of the last layer of the head, or `num_labels` is another number.
    """
    weight = None if head is None or head.labels is None else tensors.find(f"{head.labels}.weight")
    if weight is None or head is None:
        return {}
    count = weight.shape[0] if weight.shape else 0
    if fields.has("num_labels") and fields.size("num_labels") != count:
        raise fields.refusal("num_labels", f"{count}, the number of rows of '{weight.name}'")
    names = fields.data.get("id2label")
    if names is None:
        return {i: f"LABEL_{i}" for i in range(count)}
    if not isinstance(names, dict) or sorted(names) != sorted(map(str, range(count))):
        keys = f", and the field has {len(names)} keys" if isinstance(names, dict) else ""
        expected = f"an object with the keys 0 to {count - 1}: '{weight.name}' has {count} rows{keys}"
        raise fields.refusal("id2label", expected)
    if not all(isinstance(name, str) for name in names.values()):
        raise fields.refusal("id2label", "an object whose values are strings")
    return {i: names[str(i)] for i in range(count)}
