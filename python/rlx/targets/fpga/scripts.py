"""Scripts that build a design: for yosys and nextpnr, for Vivado and for Quartus.

All names in them are identifiers and names of files made of identifiers, so nothing has to be quoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlx.targets.fpga.parts import FpgaPart
from rlx.targets.fpga.synthesis import nextpnr_of

# The devices that the scripts of Vivado and Quartus choose, unless they are given another one.
_VIVADO_DEVICE, _QUARTUS_DEVICE = "xc7a35tcpg236-1", "5CEBA4F23C7"
# The tool that packs a bitstream, and the form of its input, for each tool of placement.
_PACKERS = {"nextpnr-ecp5": ("ecppack", "--textcfg", "config"), "nextpnr-ice40": ("icepack", "--asc", "asc")}


@dataclass(frozen=True)
class BuildScripts:
    """The scripts of a design.

    Attributes:
        name: The name of the design, which the names of the scripts begin with.
        top: The top module.
        clock: The port of the clock.
        part: The part.
        frequency: The clock in MHz.
        sources: The SystemVerilog files.
        memories: The files of the memories.
        benches: The files of the testbench of the top module.
        constraints: The file of constraints for the part.
    """

    name: str
    top: str
    clock: str
    part: FpgaPart
    frequency: float
    sources: Sequence[str]
    memories: Sequence[str]
    benches: Sequence[str]
    constraints: str

    def files(self) -> dict[str, str]:
        """Return the scripts by name."""
        name = self.name
        return {
            f"{name}.ys": _lines(self._yosys()),
            f"{name}.sh": _lines(self._shell()),
            f"{name}.sdc": _lines(
                [f"create_clock -name {self.clock} -period {1000 / self.frequency:.3f} [get_ports {self.clock}]"]
            ),
            f"{name}_vivado.tcl": _lines(self._vivado()),
            f"{name}_quartus.tcl": _lines(self._quartus()),
        }

    def _yosys(self) -> list[str]:
        return [
            f"# Synthesis of {self.top} for {self.part.title}: yosys {self.name}.ys",
            *(f"read_verilog -sv {source}" for source in self.sources),
            f"{self.part.synthesis} -top {self.top}",
            f"write_json {self.name}.json",
            f"tee -o {self.name}_cells.txt stat",
        ]

    def _shell(self) -> list[str]:
        name, place = self.name, nextpnr_of(self.part)
        lines = [
            "#!/bin/sh",
            f"# Synthesis{'' if place is None else ', placement, routing and the bitstream'} of {self.top}. "
            "YOSYS, NEXTPNR and PACK name other tools.",
            "set -e",
            'cd "$(dirname "$0")"',
            f"${{YOSYS:-yosys}} {name}.ys",
        ]
        if place is None:
            return [*lines, f"# No router of this kind is known for the part: {name}_vivado.tcl builds the design."]
        tool, *options = place
        pack, form, suffix = _PACKERS[tool]
        kind = "--lpf" if self.constraints.endswith(".lpf") else "--pcf"
        options += [f"{kind}-allow-unconstrained", f"--json {name}.json", f"{kind} {self.constraints}"]
        options += [f"--freq {self.frequency:g}", f"{form} {name}.{suffix}", f"--report {name}_timing.json"]
        return [
            *lines,
            f'${{NEXTPNR:-{tool}}} {" ".join(options)} "$@"',
            f"${{PACK:-{pack}}} {name}.{suffix} {name}.bit",
        ]

    def _vivado(self) -> list[str]:
        constraints = self.constraints if self.constraints.endswith(".xdc") else f"{self.name}.sdc"
        return [
            f"# A project of Vivado for {self.top}: vivado -mode batch -source {self.name}_vivado.tcl -tclargs DEVICE",
            "# It has been checked by an interpreter of Tcl, but not run by Vivado.",
            "set folder [file dirname [file normalize [info script]]]",
            f"set device {_VIVADO_DEVICE}",
            "if {$argc > 0} {set device [lindex $argv 0]}",
            f"set sources [list {_words(self.sources)}]",
            f"set memories [list {_words(self.memories)}]",
            f"set benches [list {_words(self.benches)}]",
            f"create_project -force {self.name}_vivado [file join $folder {self.name}_vivado] -part $device",
            "foreach name [concat $sources $memories] {add_files -norecurse [file join $folder $name]}",
            "foreach name $benches {add_files -fileset sim_1 -norecurse [file join $folder $name]}",
            f"add_files -fileset constrs_1 -norecurse [file join $folder {constraints}]",
            f"set_property top {self.top} [current_fileset]",
            f"set_property top {self.top}_tb [get_filesets sim_1]",
            "# Ports are not connected to pins: remove this line when the constraints have them.",
            "set_property -name {STEPS.SYNTH_DESIGN.ARGS.MORE OPTIONS} -value {-mode out_of_context} "
            "-objects [get_runs synth_1]",
            "foreach run {synth_1 impl_1} {",
            "  launch_runs $run",
            "  wait_on_run $run",
            '  if {[get_property PROGRESS [get_runs $run]] != "100%"} {error "$run failed"}',
            "}",
            "open_run impl_1",
            f"report_utilization -file [file join $folder {self.name}_utilization.txt]",
            f"report_timing_summary -file [file join $folder {self.name}_timing.txt]",
        ]

    def _quartus(self) -> list[str]:
        return [
            f"# A project of Quartus for {self.top}, in this folder: quartus_sh -t {self.name}_quartus.tcl DEVICE",
            "# It has been checked by an interpreter of Tcl, but not run by Quartus.",
            "package require ::quartus::project",
            "package require ::quartus::flow",
            f"set device {_QUARTUS_DEVICE}",
            "if {[llength $quartus(args)] > 0} {set device [lindex $quartus(args) 0]}",
            f"set sources [list {_words(self.sources)}]",
            f"project_new -overwrite {self.name}_quartus",
            "set_global_assignment -name DEVICE $device",
            f"set_global_assignment -name TOP_LEVEL_ENTITY {self.top}",
            "foreach name $sources {set_global_assignment -name SYSTEMVERILOG_FILE $name}",
            f"set_global_assignment -name SDC_FILE {self.name}.sdc",
            "# Ports are not connected to pins: remove these lines when there are assignments for them.",
            "set_instance_assignment -name VIRTUAL_PIN ON -to *",
            f"set_instance_assignment -name VIRTUAL_PIN OFF -to {self.clock}",
            "execute_flow -compile",
            "project_close",
        ]


def _words(names: Iterable[str]) -> str:
    return " ".join(names)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
