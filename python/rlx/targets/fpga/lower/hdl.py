"""A writer for modules of CIRCT's hw, comb and seq dialects as text. Building a design does not need CIRCT.

All values are integers in two's complement. The op that reads a value determines whether it is signed. A module is a graph: a
register may be read before its next value is known (`HdlModule.register` declares it, `Register.set` closes the loop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlx.targets.fpga.lower.names import within_design
from rlx.targets.fpga.lower.value_names import with_names

_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def bits_for(low: int, high: int) -> int:
    """Return the bits of the narrowest signed integer type for both numbers."""
    return max((v if v >= 0 else ~v).bit_length() for v in (low, high)) + 1


def index_bits(count: int) -> int:
    """Return the bits of an index below `count`, at least 1."""
    return max((count - 1).bit_length(), 1)


@dataclass(frozen=True)
class Wire:
    """A wire of a module.

    Attributes:
        text: Its name in the text.
        width: Its bits.
    """

    text: str
    width: int

    @property
    def type(self) -> str:
        """Its type as text."""
        return f"i{self.width}"


@dataclass(frozen=True)
class HdlMemory:
    """A memory, as a separate module. It has at most one write port, and one read port with a latency of one cycle.

    Attributes:
        name: The name of the module.
        width: The bits of a word.
        depth: The number of words.
        words: The contents of a read-only memory; None if it is writable.
    """

    name: str
    width: int
    depth: int
    words: tuple[int, ...] | None = None

    @property
    def bits(self) -> int:
        """The size in bits."""
        return self.width * self.depth

    @property
    def ports(self) -> list[tuple[str, str, int]]:
        """Direction, name and width of each port, except the clock."""
        address = index_bits(self.depth)
        ports = [("in", "en", 1), ("in", "addr", address)]
        if self.words is None:
            ports += [("in", "we", 1), ("in", "waddr", address), ("in", "wdata", self.width)]
        return [*ports, ("out", "data", self.width)]


class Register:
    """A register whose next value is set later."""

    def __init__(self, module: HdlModule, name: str, width: int):
        self._module = module
        self.value = Wire(module.fresh(name), width)

    def set(self, following: Wire, enable: Wire | None = None, reset: int | None = None) -> None:
        """Set the value after the next clock edge.

        Args:
            following: The next value.
            enable: The register keeps its value while this is 0.
            reset: The value after a reset; None if it is irrelevant.
        """
        assert following.width == self.value.width, (self.value, following)
        m = self._module
        op, clock = ("seq.compreg", "%clk") if enable is None else ("seq.compreg.ce", f"%clk, {enable.text}")
        initial = "" if reset is None else f" reset %rst, {m.const(reset, following.width).text}"
        m.line(f"{self.value.text} = {op} {following.text}, {clock}{initial} : {following.type}")


@dataclass
class Tally:
    """The resources of a module, for estimates.

    Attributes:
        products: The widths of the factors of each product of two values.
        scalings: The widths of the factors of each product with a constant.
        registers: Bits of registers.
        sums: Bits of sums, differences and order comparisons, which use carry chains.
        logic: Approximate number of four-input tables for everything else.
    """

    products: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scalings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    registers: int = 0
    sums: int = 0
    logic: float = 0.0


class HdlModule:
    """A module under construction. It has a clock `clk` and a synchronous reset `rst`.

    Attributes:
        name: Its name.
        clock_enable: Whether its memories are read only when data advances.
        memories: Its memories.
        tally: Its resources.
    """

    def __init__(self, name: str, clock_enable: bool = False):
        self.name = name
        self.clock_enable = clock_enable
        self.memories: list[HdlMemory] = []
        self.tally = Tally()
        self._inputs: list[tuple[str, int]] = []
        self._outputs: list[tuple[str, Wire]] = []
        self._lines: list[str] = []
        self._names = {"%clk", "%rst"}
        self._constants: dict[tuple[int, int], Wire] = {}
        self._numbers: dict[Wire, int] = {}

    # --- text -----------------------------------------------------------------------------------------

    def fresh(self, hint: str = "") -> str:
        """An unused name."""
        base = f"%{hint}" if hint else f"%v{len(self._names)}"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def reserve(self, *names: str) -> None:
        """Reserve names for ports that are added later."""
        self._names.update(f"%{name}" for name in names)

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)

    def op(self, text: str, width: int, name: str = "") -> Wire:
        """Add an op with one result."""
        value = Wire(self.fresh(name), width)
        self._lines.append(f"{value.text} = {text}")
        return value

    def __str__(self) -> str:
        ports = ["in %clk : !seq.clock", "in %rst : i1"]
        ports += [f"in %{name} : i{width}" for name, width in self._inputs]
        ports += [f"out {name} : {value.type}" for name, value in self._outputs]
        lines = with_names(self._lines, {name: value.text for name, value in self._outputs})
        body = "\n".join(f"  {line}" for line in lines)
        values = ", ".join(v.text for _, v in self._outputs)
        types = ", ".join(v.type for _, v in self._outputs)
        end = f"  hw.output {values} : {types}" if self._outputs else "  hw.output"
        return f"({', '.join(ports)}) {{\n{body}\n{end}\n}}\n"

    # --- ports ----------------------------------------------------------------------------------------

    def input(self, name: str, width: int) -> Wire:
        """A new input port."""
        self._inputs.append((name, width))
        self._names.add(f"%{name}")
        return Wire(f"%{name}", width)

    def output(self, name: str, value: Wire) -> None:
        """A new output port."""
        self._outputs.append((name, value))

    @property
    def ports(self) -> list[tuple[str, str, int]]:
        """Direction, name and width of each port, except clock and reset."""
        return [("in", n, w) for n, w in self._inputs] + [("out", n, v.width) for n, v in self._outputs]

    # --- combinational logic ----------------------------------------------------------------------------

    def const(self, value: int, width: int) -> Wire:
        """A constant modulo `2**width`."""
        value &= (1 << width) - 1
        if (value, width) not in self._constants:
            signed = value - (1 << width) if width > 1 and value >> (width - 1) else value
            text = ("true" if value else "false") if width == 1 else f"{signed} : i{width}"
            made = self._constants[value, width] = self.op(f"hw.constant {text}", width)
            self._numbers[made] = value
        return self._constants[value, width]

    def named(self, value: Wire, name: str) -> Wire:
        """The value, with a name that is kept in Verilog for readability."""
        for i in range(len(self._lines) - 1, -1, -1):
            if self._lines[i].startswith(f"{value.text} = comb."):
                head, colon, types = self._lines[i].rpartition(" : ")
                if "sv.namehint" not in head and "(" not in head:
                    self._lines[i] = f'{head} {{sv.namehint = "{name}"}}{colon}{types}'
                break
        return value

    def define(self, wire: Wire, value: Wire) -> None:
        """Define a wire that has already been read."""
        assert wire.width == value.width, (wire, value)
        name = wire.text.removeprefix("%")
        self.named(value, name)
        self._lines.append(f'{wire.text} = comb.or {value.text} {{sv.namehint = "{name}"}} : {value.type}')

    def is_constant(self, value: Wire) -> bool:
        """Whether a value came from `const`."""
        return value in self._numbers

    def is_zero(self, value: Wire) -> bool:
        """Whether a value is the constant 0."""
        return self._numbers.get(value) == 0

    def _variadic(self, op: str, values: Sequence[Wire]) -> Wire:
        assert len({v.width for v in values}) == 1, (op, values)
        if len(values) == 1:
            return values[0]
        bits = values[0].width * (len(values) - 1)
        if op in ("add", "sub"):
            self.tally.sums += bits
        else:
            self.tally.logic += 0.4 * bits
        return self.op(f"comb.{op} {', '.join(v.text for v in values)} : {values[0].type}", values[0].width)

    def add(self, *values: Wire) -> Wire:
        """A sum, modulo the width."""
        return self._variadic("add", values)

    def sub(self, left: Wire, right: Wire) -> Wire:
        """A difference, modulo the width."""
        return self._variadic("sub", (left, right))

    def mul(self, left: Wire, right: Wire) -> Wire:
        """The full product of two signed numbers. A product with a constant that is a power of two is a shift."""
        width = left.width + right.width
        for value, factor in ((left, right), (right, left)):
            number = self._numbers.get(factor, -1)
            if number == 0:
                return self.const(0, width)
            if number & (number - 1) == 0 and 0 < number < 1 << (factor.width - 1):
                return self.shift_left(value, number.bit_length() - 1, width)
        constant = self.is_constant(left) or self.is_constant(right)
        (self.tally.scalings if constant else self.tally.products).append((left.width, right.width))
        a, b = self.sext(left, width), self.sext(right, width)
        return self.op(f"comb.mul {a.text}, {b.text} : i{width}", width)

    def bitwise(self, kind: str, left: Wire, right: Wire) -> Wire:
        """Bitwise `and`, `or` or `xor` of two words."""
        return self._variadic(kind, (left, right))

    def all(self, *values: Wire) -> Wire:
        """The conjunction of bits, bitwise for words."""
        return self._variadic("and", values)

    def any(self, *values: Wire) -> Wire:
        """The disjunction of bits."""
        return self._variadic("or", values)

    def invert(self, value: Wire) -> Wire:
        """The bitwise complement."""
        return self.op(f"comb.xor {value.text}, {self.const(-1, value.width).text} : {value.type}", value.width)

    def compare(self, predicate: str, left: Wire, right: Wire | int) -> Wire:
        """A comparison: `eq`, `ne`, `slt` … for signed numbers, `ult` … for unsigned numbers."""
        assert predicate in _PREDICATES
        right = self.const(right, left.width) if isinstance(right, int) else right
        assert left.width == right.width, (left, right)
        if predicate in ("eq", "ne"):
            self.tally.logic += left.width * 0.5
        else:
            self.tally.sums += left.width
        return self.op(f"comb.icmp {predicate} {left.text}, {right.text} : {left.type}", 1)

    def mux(self, condition: Wire, yes: Wire, no: Wire) -> Wire:
        """One of two values."""
        assert condition.width == 1 and yes.width == no.width, (condition, yes, no)
        if (self._numbers.get(yes), self._numbers.get(no)) == (1, 0):
            return self.zext(condition, yes.width)
        self.tally.logic += yes.width * 0.5
        return self.op(f"comb.mux {condition.text}, {yes.text}, {no.text} : {yes.type}", yes.width)

    def rows(self, left: Wire, right: Wire) -> list[Wire]:
        """The partial products of two signed numbers, one for each bit of the second number. Their sum is the product."""
        width = left.width + right.width
        zero = self.const(0, width)
        wide = self.sext(left, width)
        rows: list[Wire] = []
        for bit in range(right.width):
            row = self.shift_left(wide, bit, width)
            if bit == right.width - 1:
                row = self.sub(zero, row)
            rows.append(self.mux(self.extract(right, bit, 1), row, zero))
        return rows

    def extract(self, value: Wire, low: int, width: int) -> Wire:
        """The `width` bits of a value that begin at bit `low`."""
        if low == 0 and width == value.width:
            return value
        if value in self._numbers:
            return self.const(self._numbers[value] >> low, width)
        assert low >= 0 and low + width <= value.width, (value, low, width)
        return self.op(f"comb.extract {value.text} from {low} : ({value.type}) -> i{width}", width)

    def concat(self, *high_to_low: Wire) -> Wire:
        """The concatenation of values."""
        if len(high_to_low) == 1:
            return high_to_low[0]
        types = ", ".join(v.type for v in high_to_low)
        width = sum(v.width for v in high_to_low)
        return self.op(f"comb.concat {', '.join(v.text for v in high_to_low)} : {types}", width)

    def zext(self, value: Wire, width: int) -> Wire:
        """A value, zero-extended."""
        if value in self._numbers:
            return self.const(self._numbers[value], width)
        return value if width == value.width else self.concat(self.const(0, width - value.width), value)

    def sext(self, value: Wire, width: int) -> Wire:
        """A value, sign-extended."""
        if width == value.width:
            return value
        sign = self.extract(value, value.width - 1, 1)
        count = width - value.width
        signs = self.op(f"comb.replicate {sign.text} : (i1) -> i{count}", count) if count > 1 else sign
        return self.concat(signs, value)

    def fit(self, value: Wire, width: int) -> Wire:
        """A signed number, sign-extended or truncated to a width."""
        return self.sext(value, width) if width >= value.width else self.extract(value, 0, width)

    def shift_left(self, value: Wire, count: int, width: int) -> Wire:
        """A value times `2**count`, modulo the width."""
        if count == 0:
            return self.fit(value, width)
        if count >= width:
            return self.const(0, width)
        return self.concat(self.fit(value, width - count), self.const(0, count))

    def shift_right(self, value: Wire, count: int) -> Wire:
        """A signed number divided by `2**count`, rounded down. It is narrower by `count` bits, but has at least one bit."""
        low = min(count, value.width - 1)
        return self.extract(value, low, value.width - low)

    # --- state ------------------------------------------------------------------------------------------

    def register(self, name: str, width: int) -> Register:
        """A register whose next value is set later."""
        self.tally.registers += width
        return Register(self, name, width)

    def delayed(self, value: Wire, name: str, enable: Wire | None = None, reset: int | None = None) -> Wire:
        """The value before the last clock edge at which the register was enabled."""
        register = self.register(name, value.width)
        register.set(value, enable, reset)
        return register.value

    def counter(self, name: str, count: int, step: Wire) -> tuple[Wire, Wire]:
        """A counter from 0 to `count - 1` that wraps around, and whether it is at its last value."""
        if count == 1:
            return self.const(0, 1), self.const(1, 1)
        register = self.register(name, index_bits(count))
        last = self.named(self.compare("eq", register.value, count - 1), f"{name}_last")
        following = self.add(register.value, self.const(1, register.value.width))
        register.set(self.mux(last, self.const(0, register.value.width), following), step, reset=0)
        return register.value, last

    def lookup(self, index: Wire, values: Sequence[int], width: int) -> Wire:
        """A constant for each value of an index, as multiplexers with the most common constant as default."""
        common = max(set(values), key=list(values).count)
        result = self.const(common, width)
        for i, value in enumerate(values):
            if value == 0 and self._numbers.get(result) == 1:
                result = self.zext(self.compare("ne", index, i), width)
            elif value != common:
                result = self.mux(self.compare("eq", index, i), self.const(value, width), result)
        return result

    # --- other modules ------------------------------------------------------------------------------------

    def read_only(self, name: str, words: Sequence[int], width: int, address: Wire, enable: Wire) -> Wire:
        """Add a read-only memory, and return the word that was addressed at the last enabled edge."""
        mask = (1 << width) - 1
        words = [*words, 0] if len(words) == 1 else words  # a memory of one word would have no address
        memory = HdlMemory(within_design(self.name, name), width, len(words), tuple(int(w) & mask for w in words))
        return self._memory(memory, name, [enable, address])

    def memory(
        self, name: str, depth: int, width: int, read: tuple[Wire, Wire], write: tuple[Wire, Wire, Wire]
    ) -> Wire:
        """Add a memory, and return the word that was addressed at the last enabled edge.

        Args:
            name: Its name.
            depth: The number of words.
            width: The bits of a word.
            read: The read enable and the address.
            write: The write enable, the address and the data.
        """
        return self._memory(HdlMemory(within_design(self.name, name), width, depth), name, [*read, *write])

    def _memory(self, memory: HdlMemory, name: str, operands: list[Wire]) -> Wire:
        self.memories.append(memory)
        given = [p for p in memory.ports if p[0] == "in"]
        assert [w for _, _, w in given] == [v.width for v in operands], (memory.name, given, operands)
        ports = ", ".join(f"{n}: {v.text}: {v.type}" for (_, n, _), v in zip(given, operands, strict=True))
        text = f'hw.instance "{name}" @{memory.name}(clk: %clk: !seq.clock, {ports}) -> (data: i{memory.width})'
        return self.op(text, memory.width, f"{name}_data")

    def instance(self, name: str, module: str, ports: Sequence[tuple[str, str, int]], wires: dict[str, Wire]) -> None:
        """Add an instance of a module. It defines the wires of its outputs. The wires of its inputs may be defined later."""
        given = "".join(f", {n}: {wires[n].text}: i{w}" for d, n, w in ports if d == "in")
        results = [(n, w) for d, n, w in ports if d == "out"]
        values = ", ".join(wires[n].text for n, _ in results)
        types = ", ".join(f"{n}: i{w}" for n, w in results)
        call = f'hw.instance "{name}" @{module}(clk: %clk: !seq.clock, rst: %rst: i1{given}) -> ({types})'
        self.line(f"{values} = {call}" if values else call)

    def wire(self, name: str, width: int) -> Wire:
        """A wire that is defined later."""
        return Wire(self.fresh(name), width)
