"""The flags of the FPGA targets. Importing this imports nothing."""

from __future__ import annotations

# Held to `parts.PARTS` and `schedule.PRESETS` by a test.
PART_NAMES = ("ecp5-25k", "ecp5-85k", "ice40-up5k", "xc7")
PRESET_NAMES = ("latency", "size", "energy", "precision", "bandwidth")
# What synthesis finds is wanted too; the only flag without a value.
REPORT = "--report"
# Options beside the presets: numbers, and choices.
COUNTS, CHOICES = ("--parallel", "--lanes"), ("--ternary", "--shared-requant", "--clock-enable")
# Flags with their values, for messages.
FLAGS = {
    "--preset": "|".join(PRESET_NAMES),
    "--part": "|".join(PART_NAMES),
    "--freq": "MHZ",
    **dict.fromkeys(COUNTS, "N"),
    **dict.fromkeys(CHOICES, "yes|no"),
    REPORT: "",
}
COMMAND_LINE = {
    "--preset": ("NAME", f"fpga: what the design is to be good at: {', '.join(PRESET_NAMES)}"),
    "--part": ("NAME", f"the part: for fpga {', '.join(PART_NAMES)}; for cortexm see its page"),
    "--freq": ("MHZ", "fpga: the clock"),
    "--parallel": ("P", "fpga: results that each product has at once, at most (default: as the preset says)"),
    "--lanes": ("Q", "fpga: input channels that each product takes at once, at most (likewise)"),
    "--ternary": ("yes|no", "fpga: whether weights of -1, 0 and 1 are additions (likewise)"),
    "--shared-requant": ("yes|no", "fpga: whether a requantiser has one adder that takes turns (likewise)"),
    "--clock-enable": ("yes|no", "fpga: whether memories are read only where something moves on (likewise)"),
}
