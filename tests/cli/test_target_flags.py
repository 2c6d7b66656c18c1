"""Options for only some targets: the error for other targets names the owners, before compilation."""

from __future__ import annotations

import pytest

import rlx
from rlx.cli.main import main
from rlx.targets.flags import command_line_flags
from rlx.targets.registry import target_names, target_of

VALUES = {
    **{"--preset": "latency", "--part": "ecp5-25k", "--freq": "50", "--parallel": "2", "--lanes": "2"},
    **{"--axi": "stream", "--axi-width": "32"},
    **{"--ternary": "yes", "--shared-requant": "yes", "--clock-enable": "yes", "--stablehlo-version": "1.4.0"},
}


def owners(option: str) -> set[str]:
    """Return the targets that accept an option."""
    if option == "--stablehlo-version":
        return {"stablehlo"}
    return {"fpga"} if option.startswith("--axi") else {"fpga", "fpga-sim"}


@pytest.mark.parametrize("option", command_line_flags())
def test_each_option_is_taken_or_named(option: str) -> None:
    flag = f"{option}={VALUES[option]}"
    others = ("--axi=stream",) if option == "--axi-width" else ()
    for name in target_names():
        if name in owners(option):
            target_of(name, None, (flag, *others))
            continue
        with pytest.raises(rlx.Error) as caught:
            target_of(name, None, (flag,))
        if name == "fpga-sim" and option.startswith("--axi"):
            assert "no AXI ports" in str(caught.value)
            continue
        assert VALUES[option] in str(caught.value)
        assert option == "--part" or "flag" in str(caught.value) or "--target=stablehlo" in str(caught.value), (
            caught.value
        )


@pytest.mark.parametrize("target", ["cpu", "llvm-cpu", "cuda", "xla"])
def test_the_command_says_so(target: str, tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = f"{tmp_path}/m.mlir", f"{tmp_path}/out"
    with open(file, "w") as text:
        text.write("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n")
    assert main(["compile", file, f"--target={target}", "--stablehlo-version=1.4.0", "-o", out]) == 1
    message = capsys.readouterr().err
    assert "--stablehlo-version=1.4.0" in message and "stablehlo" in message.partition("hint: ")[2]
