"""The driver of a simulated design, as LLVM IR: the clock, a reset, the elements of inputs, and readers of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RESET_CYCLES = 4


@dataclass(frozen=True)
class Port:
    """A stream at the edge of a design.

    Attributes:
        name: Its name: the ports are `<name>_valid`, `<name>_data` and `<name>_ready`.
        bits: The bits of its data.
        count: The number of elements of a tensor.
    """

    name: str
    bits: int
    count: int


def driver(top: str, offsets: Mapping[str, int], inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """LLVM IR of `rlx_drive(state, pointers, numbers, unused, most cycles, input limit, output limit, seed)`.

    The function returns the number of cycles, or -1 at the limit. `numbers` has the number of elements of each stream, then the
    number of elements transferred so far.
    """
    return _HarnessWriter(top, offsets, [(p, True) for p in inputs] + [(p, False) for p in outputs]).text()


class _HarnessWriter:
    """The writer of the function."""

    def __init__(self, top: str, offsets: Mapping[str, int], ports: Sequence[tuple[Port, bool]]):
        self._top, self._offsets, self._ports = top, offsets, ports
        self._lines: list[str] = []
        self._count = 0

    def text(self) -> str:
        """The whole function."""
        count = len(self._ports)
        self._reset()
        self._line("  br label %cycle")
        self._line("cycle:")
        self._line("  %now = phi i64 [ 0, %entry ], [ %next, %more ]")
        self._line(f"  store i1 false, ptr {self._port('clk')}")
        driven = [self._driven(i) for i in range(count)]
        self._line(f"  call void @{self._top}_eval(ptr %state)")
        waiting = "false"
        for i, (position, signal) in enumerate(driven):
            waiting = self._moved(i, position, signal, waiting)
        self._edge("true")
        self._line("  %next = add i64 %now, 1")
        late = self._op("icmp uge i64 %next, %most")
        end = [
            f"  br i1 {waiting}, label %more, label %end",
            "more:",
            f"  br i1 {late}, label %stuck, label %cycle",
            "end:",
            "  ret i64 %next",
            "stuck:",
            "  ret i64 -1",
            "}",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "",
        ]
        head = [
            "",
            "define i64 @rlx_drive(ptr %state, ptr %pointers, ptr %numbers, ptr %unused, i64 %most, i64 %inlimit, "
            "i64 %outlimit, i64 %seed) {",
            "entry:",
            "  %rng = alloca i64",
            f"  %held = alloca i1, i64 {count}",
            f"  call void @llvm.memset.p0.i64(ptr %held, i8 0, i64 {count}, i1 false)",
            "  store i64 %seed, ptr %rng",
        ]
        return "\n".join([*head, *self._lines, *end])

    # --- pieces -----------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append(text)

    def _op(self, text: str) -> str:
        self._count += 1
        self._line(f"  %t{self._count} = {text}")
        return f"%t{self._count}"

    def _at(self, base: str, index: int | str, kind: str = "i64") -> str:
        return self._op(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def _port(self, name: str) -> str:
        return self._op(f"getelementptr i8, ptr %state, i64 {self._offsets[name]}")

    def _load(self, kind: str, place: str) -> str:
        return self._op(f"load {kind}, ptr {place}")

    def _draw(self, limit: str) -> str:
        """Draw a random number, and return whether it is at least a limit."""
        x = self._load("i64", "%rng")
        for shift, direction in ((13, "shl"), (7, "lshr"), (17, "shl")):
            x = self._op(f"xor i64 {x}, {self._op(f'{direction} i64 {x}, {shift}')}")
        self._line(f"  store i64 {x}, ptr %rng")
        return self._op(f"icmp uge i64 {self._op(f'lshr i64 {x}, 32')}, {limit}")

    def _edge(self, value: str) -> None:
        self._line(f"  store i1 {value}, ptr {self._port('clk')}")
        self._line(f"  call void @{self._top}_eval(ptr %state)")

    def _reset(self) -> None:
        self._line(f"  store i1 true, ptr {self._port('rst')}")
        for _ in range(_RESET_CYCLES):
            self._edge("false")
            self._edge("true")
        self._line(f"  store i1 false, ptr {self._port('rst')}")

    def _place(self, index: int, position: str, within: str) -> str:
        """The address of the next element of a stream. After the last element, it is any valid address."""
        safe = self._op(f"select i1 {within}, i64 {position}, i64 0")
        return self._at(self._load("ptr", self._at("%pointers", index, "ptr")), safe)

    def _driven(self, index: int) -> tuple[str, str]:
        """Drive a port before the edge. Returns the number of transferred elements, and whether this side is ready."""
        port, is_input = self._ports[index]
        position = self._load("i64", self._at("%numbers", len(self._ports) + index))
        if not is_input:
            # Elements after the last tensor, which designs with states produce, are not read.
            awaited = self._op(f"icmp ult i64 {position}, {self._load('i64', self._at('%numbers', index))}")
            ready = self._op(f"and i1 {self._draw('%outlimit')}, {awaited}")
            self._line(f"  store i1 {ready}, ptr {self._port(f'{port.name}_ready')}")
            return position, ready
        left = self._op(f"icmp ult i64 {position}, {self._load('i64', self._at('%numbers', index))}")
        # A valid element stays valid until it is taken.
        wanted = self._op(f"or i1 {self._draw('%inlimit')}, {self._load('i1', self._at('%held', index, 'i1'))}")
        valid = self._op(f"and i1 {wanted}, {left}")
        value = self._load("i64", self._place(index, position, left))
        data = value if port.bits == 64 else self._op(f"trunc i64 {value} to i{port.bits}")
        self._line(f"  store i{port.bits} {data}, ptr {self._port(f'{port.name}_data')}")
        self._line(f"  store i1 {valid}, ptr {self._port(f'{port.name}_valid')}")
        return position, valid

    def _moved(self, index: int, position: str, driven: str, waiting: str) -> str:
        """Record the transfer at a port at the edge. Returns whether this or an earlier output still expects elements."""
        port, is_input = self._ports[index]
        other = self._load("i1", self._port(port.name + ("_ready" if is_input else "_valid")))
        moves = self._op(f"and i1 {driven}, {other}")
        if is_input:
            kept = self._op(f"and i1 {driven}, {self._op(f'xor i1 {moves}, true')}")
            self._line(f"  store i1 {kept}, ptr {self._at('%held', index, 'i1')}")
        total = self._load("i64", self._at("%numbers", index))
        if not is_input:
            place = self._place(index, position, self._op(f"icmp ult i64 {position}, {total}"))
            data = self._load(f"i{port.bits}", self._port(f"{port.name}_data"))
            wide = data if port.bits == 64 else self._op(f"sext i{port.bits} {data} to i64")
            stored = self._op(f"select i1 {moves}, i64 {wide}, i64 {self._load('i64', place)}")
            self._line(f"  store i64 {stored}, ptr {place}")
        after = self._op(f"add i64 {position}, {self._op(f'zext i1 {moves} to i64')}")
        self._line(f"  store i64 {after}, ptr {self._at('%numbers', len(self._ports) + index)}")
        if is_input:
            return waiting
        return self._op(f"or i1 {waiting}, {self._op(f'icmp ult i64 {after}, {total}')}")
