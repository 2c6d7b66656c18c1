"""The flags of the FPGA targets. Importing this imports nothing."""

from __future__ import annotations

# A test compares these with `parts.PARTS` and `schedule.PRESETS`.
PART_NAMES = ("ecp5-25k", "ecp5-85k", "ice40-up5k", "xc7")
PRESET_NAMES = ("latency", "size", "energy", "precision", "bandwidth")
# Requests the report, including synthesis. It is the only flag without a value.
REPORT = "--report"
# Options that override the preset: numbers, and choices.
COUNTS, CHOICES = ("--parallel", "--lanes"), ("--ternary", "--shared-requant", "--clock-enable")
# Options of the wrapper with AXI ports.
AXI, AXI_WIDTH = "--axi", "--axi-width"
AXI_KINDS = ("stream", "lite")
AXI_WIDTHS = (8, 16, 32, 64, 128, 256, 512)
# Flags with their values, for messages.
FLAGS = {
    "--preset": "|".join(PRESET_NAMES),
    "--part": "|".join(PART_NAMES),
    "--freq": "MHZ",
    **dict.fromkeys(COUNTS, "N"),
    **dict.fromkeys(CHOICES, "yes|no"),
    AXI: "|".join(AXI_KINDS),
    AXI_WIDTH: "BITS",
    REPORT: "",
}
COMMAND_LINE = {
    "--preset": ("NAME", f"fpga: the goal of the design: {', '.join(PRESET_NAMES)}"),
    "--part": ("NAME", f"the part: for fpga {', '.join(PART_NAMES)}; for cortexm see its page"),
    "--freq": ("MHZ", "fpga: the clock"),
    "--parallel": ("P", "fpga: maximal number of results computed at once (default: from the preset)"),
    "--lanes": ("Q", "fpga: maximal number of input channels multiplied at once (default: from the preset)"),
    "--ternary": ("yes|no", "fpga: whether weights of -1, 0 and 1 become additions (default: from the preset)"),
    "--shared-requant": ("yes|no", "fpga: whether requantisers use serial products (default: from the preset)"),
    "--clock-enable": ("yes|no", "fpga: whether memories are read only when data moves (default: from the preset)"),
    AXI: ("|".join(AXI_KINDS), "fpga: add a wrapper with AXI4-Stream ports; lite: and AXI4-Lite registers"),
    AXI_WIDTH: ("BITS", "fpga: the width of the data of AXI4-Stream ports (default: one element)"),
}
