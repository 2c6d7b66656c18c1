"""The flags of the FPGA targets. Importing this imports nothing."""

from __future__ import annotations

# Held to `parts.PARTS` and `schedule.PRESETS` by a test.
PART_NAMES = ("ecp5-25k", "ice40-up5k", "xc7")
PRESET_NAMES = ("latency", "size", "energy", "precision", "bandwidth")
SYNTHESISE = "--synthesise"
# Flags with their values, for messages.
FLAGS = {"--preset": "|".join(PRESET_NAMES), "--part": "|".join(PART_NAMES), "--freq": "MHZ", SYNTHESISE: ""}
COMMAND_LINE = {
    "--preset": ("NAME", f"fpga: what the design is to be good at: {', '.join(PRESET_NAMES)}"),
    "--part": ("NAME", f"the part: for fpga {', '.join(PART_NAMES)}; for cortexm see its page"),
    "--freq": ("MHZ", "fpga: the clock"),
}
