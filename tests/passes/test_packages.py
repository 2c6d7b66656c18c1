"""Passes of other packages: they are found by name in a process where the package is installed."""

from __future__ import annotations

from pathlib import Path

import rlx
from rlx.passes import base, packages
from tests.installed import install, python

_PASS = """
from dataclasses import dataclass
from rlx.passes.base import Pass, option

@dataclass(frozen=True)
class Mark(Pass, name="rlx-mark"):
    '''Mark a module.'''

    word: str = option("seen", "what it is marked with")

    def run(self, module):
        module.operation.attributes["rlx.mark"] = __import__("rlx.mlir").mlir.ir.StringAttr.get(self.word)
"""
_USE = """
import rlx
g = rlx.Graph("g")
g.set_outputs([g.input("x", (2,)) * 2.0])
print(rlx.passes.run(g, "rlx-mark{word=mine}").module)
print([p.name for p in rlx.passes.list() if p.name == "rlx-mark"])
"""


def test_a_pass_of_another_package_is_found_by_its_name(tmp_path: Path) -> None:
    install(tmp_path, "marks", "marking", _PASS, group="rlx.passes")
    install(tmp_path, "broken", "breaking", "raise ValueError('no')", group="rlx.passes")
    printed = python(tmp_path, _USE)
    assert 'rlx.mark = "mine"' in printed and "['rlx-mark']" in printed
    assert "passes 'breaking' of broken 1.0 are left out: ValueError: no" in printed


def test_a_pass_of_a_back_end_is_in_its_folder() -> None:
    assert packages.name_of("rlx.targets.iree.passes.scatter") == "rlx-iree-scatter"
    assert packages.name_of("rlx.targets.iree.pipeline") is None
    assert packages.name_of("rlx.plan.passes.plan_memory") == "rlx-plan-memory"
    found = base.find("rlx-iree-scatter")
    assert found is not None and found.__module__ == "rlx.targets.iree.passes.scatter"
    assert base.find("rlx-xla-scatter") is None
    assert "rlx-iree-scatter" in {p.name for p in rlx.passes.list()}
