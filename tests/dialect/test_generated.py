"""The files generated from `dialect/*.td` are current and match the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlx.dialect import spec_gen
from rlx.dialect.spec import REQUIRED
from tools import dtypes_page, generate_dialect, generate_docs, generate_stubs

ROOT = Path(__file__).resolve().parents[2]


def test_generated_files_are_current() -> None:
    files = generate_dialect.outputs(generate_dialect.read_dialect(ROOT))
    assert generate_dialect.update(ROOT, files, check=True) == [], "run `make dialect`"


def test_coverage_page_is_current_and_has_no_undeclared_hole() -> None:
    assert generate_docs.holes() == []
    assert (ROOT / generate_docs.PAGE).read_text() == generate_docs.page(), "run `make docs`"


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4", "aarch64"])
def test_the_page_of_targets_is_current_on_every_machine(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU_LEVEL", level)
    assert (ROOT / generate_docs.TARGETS_PAGE).read_text() == generate_docs.targets_page(), "run `make docs`"


def test_the_page_of_dtypes_is_current() -> None:
    assert (ROOT / dtypes_page.PAGE).read_text() == dtypes_page.page(), "run `make docs`"


@pytest.mark.parametrize("name", generate_stubs.outputs())
def test_stubs_are_current(name: str) -> None:
    assert (ROOT / name).read_text() == generate_stubs.outputs()[name], "run `make docs`"


@pytest.mark.parametrize("spec", spec_gen.OPS, ids=lambda spec: spec.name)
def test_every_record_is_complete(spec) -> None:
    assert spec.summary and not spec.summary.endswith("."), "a summary is one phrase"
    assert spec.description
    assert spec.stage in ("hir", "mir", "lir")
    for attribute in spec.attributes:
        assert (
            attribute.default is REQUIRED
            or attribute.default is None
            or attribute.cases == ()
            or (attribute.default in attribute.cases)
        )
    for value in (*spec.operands, *spec.results):
        assert value.dtypes


def test_every_op_has_one_card_in_the_file_of_its_family() -> None:
    from rlx.ir.op import registry

    registry.load()
    cards = registry.registered()
    assert set(cards) == {spec.name for spec in spec_gen.OPS}
    for name, card in cards.items():
        module = type(card).__module__
        assert module.rsplit(".", 1)[-1] == card.spec.family, (
            f"{name} belongs into {card.spec.family}.py, is in {module}"
        )
        assert module.startswith("rlx.blocks" if card.spec.stage == "hir" else "rlx.ops"), name
