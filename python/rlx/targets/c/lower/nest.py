"""Loop nests that omit loops of one iteration."""

from __future__ import annotations

from rlx.targets.c.lower.writer import Writer


class LoopNest:
    """Nested loops that end together."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.open = 0

    def __enter__(self) -> LoopNest:
        return self

    def __exit__(self, *problem: object) -> None:
        for _ in range(self.open):
            self.writer.depth -= 1
            self.writer.line("}")

    def loop(self, variable: str, count: int, step: int = 1) -> None:
        """Open a loop, unless it would run once."""
        if count <= 1:
            return
        advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
        self.writer.line(f"for (int32_t {variable} = 0; {variable} < {count}; {advance}) {{")
        self.writer.depth += 1
        self.open += 1

    def once(self, line: str) -> None:
        """Open a block that begins with a line."""
        self.writer.line("{")
        self.writer.depth += 1
        self.open += 1
        self.writer.line(line)

    def pairs(self, variable: str, count: int) -> None:
        """Open a loop with step 2. If it would run once, the variable is 0."""
        if count <= 2:
            self.once(f"const int32_t {variable} = 0;")
            return
        self.loop(variable, count, 2)

    def second(self, variable: str, count: int) -> str:
        """The second index of a pair. If the count is odd, the last pair has one index twice."""
        if count == 1:
            return variable
        if count % 2 == 0:
            return f"{variable} + 1"
        name = f"next_{variable}"
        self.writer.line(f"const int32_t {name} = ({variable} + 1 < {count}) ? {variable} + 1 : {variable};")
        return name
