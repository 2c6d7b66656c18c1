"""Names in SystemVerilog: identifiers close to the user's names, and the names of modules and files of a design."""

from __future__ import annotations

import re

from rlx.support.printable import printable
from rlx.support.short import shorten_lines
from rlx.targets.lowering.names import scope_words

# The longest name of a design, and of a port or layer.
_LONGEST_DESIGN, _LONGEST = 64, 24
# Identifiers never contain this, so a layer `head` of a design `net` and a design `net_head` have different modules.
_SEPARATOR = "__"

# The keywords of IEEE 1800-2017, and names that Windows does not allow for files.
_WORDS = (
    "accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins "
    "binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const "
    "constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge "
    "else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule "
    "endpackage endprimitive endprogram endproperty endspecify endsequence endtable endtask enum event eventually expect "
    "export extends extern final first_match for force foreach forever fork forkjoin function generate genvar global "
    "highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include initial inout input "
    "inside instance int integer interconnect interface intersect join join_any join_none large let liblist library local "
    "localparam logic longint macromodule matches medium modport module nand negedge nettype new nexttime nmos nor "
    "noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program "
    "property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase "
    "randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 "
    "rtranif1 s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled "
    "signed small soft solve specify specparam static step string strong strong0 strong1 struct super supply0 supply1 "
    "sync_accept_on sync_reject_on table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri "
    "tri0 tri1 triand trior trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var "
    "vectored virtual void wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor "
    "con prn aux nul"
)
_KEYWORDS = frozenset(_WORDS.split())


def identifier(text: str, fallback: str = "x", longest: int = _LONGEST) -> str:
    """Return text as an identifier of SystemVerilog without `__`, or `_` at either end. It may be a keyword."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text)[:longest].strip("_") or fallback
    return name if name[0].isalpha() else f"{fallback}{name}"


def is_keyword(name: str) -> bool:
    """Whether a name is a keyword of SystemVerilog, in any case, or reserved in file systems."""
    return name.lower() in _KEYWORDS or re.fullmatch(r"(com|lpt)\d", name.lower()) is not None


def layer_name(counts: dict[str, int], base: str, scope: str = "") -> str:
    """Return a new name for a layer: `stem_conv` in the scope `stem`, `conv1` without a scope. Names differ in more than case.

    Args:
        counts: The number of names so far for each base in lower case.
        base: The kind of the layer, in letters.
        scope: The scope of the op in the user's model.
    """
    words = scope_words(scope, _LONGEST)
    whole = f"{identifier(words)}_{base}" if words else base
    counts[whole.lower()] = count = counts.get(whole.lower(), 0) + 1
    if not words:
        return f"{base}{count}"
    return whole if count == 1 else f"{whole}_{count}"


def commented(text: str) -> str:
    """Return text for the end of a comment of one line, in ASCII, as some tools read nothing else.

    It must not be the beginning of the comment: there, tools read commands, such as `synthesis translate_off`.
    """
    line = printable(shorten_lines(text), keep="").encode("ascii", "backslashreplace").decode()
    return f"{line} ." if line.endswith("\\") else line


def design_name(text: str) -> str:
    """Return the name of a design from that of a graph: its top module has this name, and all other names begin with it."""
    name = identifier(text, longest=_LONGEST_DESIGN)
    return f"{name}_top" if is_keyword(name) else name


def within_design(*names: str) -> str:
    """Return the name of a module in a design: the name of the design, then identifiers, as `net__conv1__weights`."""
    return _SEPARATOR.join(names)
