"""Positions and elements of keys and values in caches, for the kernels of `cached_attention`."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.ir.dtype import f16, f32
from rlx.kernels.buffer import Buffer, Size, greatest, product
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.kernel import Kernel
from rlx.kernels.library.narrow_floats import Floats, floats
from rlx.kernels.library.packed_formats import FORMATS, PackedBytes
from rlx.kernels.values import Value
from rlx.ops.attention.cached import heads_of_cache
from rlx.ops.attention.heads import Heads
from rlx.schemes import find_scheme

# Keys whose scores are computed together, from a multiple of this number on: a multiple of the lanes of all CPUs. Kernels
# take pages whose rows are a multiple of it, so that these keys are in one page.
KEYS_AT_ONCE = 64
_SCHEME = find_scheme("q8_0")
BLOCK = _SCHEME.block  # elements with one scale


def sizes_of_cache(case: KernelCase) -> Heads:
    q, k, v, _, pages = case.operands
    names = ("num_heads", "head_dim", "scheme")
    return heads_of_cache(q, k, v, pages, *(case.attributes[name] for name in names))  # type: ignore[arg-type]


def has_caches_for_kernels(case: KernelCase) -> bool:
    """Whether kernels read the elements of the caches."""
    k, v = case.tensors[1:3]
    if case.attributes["scheme"] is not None:
        return case.attributes["scheme"].lower() == _SCHEME.name
    return k.dtype is v.dtype and k.dtype in (f32, f16)


def has_pages_for_kernels(case: KernelCase) -> bool:
    """Whether the cache has no pages, or pages whose number of rows the kernels take."""
    length = case.tensors[1].dims[1]
    return case.operands[4] is None or (isinstance(length, int) and length > 0 and length % KEYS_AT_ONCE == 0)


@dataclass(frozen=True)
class CacheRows:
    """The positions of the keys of each entry of a batch in a cache.

    Attributes:
        k: The kernel.
        length: The number of rows of a page, or without pages of an entry.
        pages: The pages of each entry, `[B, N]`; None without pages.
        count: The number of pages that exist.
    """

    k: Kernel
    length: Size
    pages: Buffer | None
    count: Size

    @property
    def keys(self) -> Size:
        """The number of keys of each entry."""
        return self.length if self.pages is None else self.pages.shape[1] * self.length

    def row_of(self, b: Value, key: Value) -> Value:
        """Return the row of a key, the first of some that are computed together."""
        if self.pages is None:
            return b * self.length + key
        page = self.pages[b, key // self.length].to(INDEX)
        last = self.k.index(self.count) - 1
        page = greatest(self.k.least(page, last), 0)
        return page * self.length + key % self.length


@dataclass(frozen=True)
class CachedFloats:
    """The heads of a cache of floats, as blocks of a few vectors.

    Attributes:
        k: The kernel.
        elements: The rows.
        width: The number of elements of a head.
    """

    k: Kernel
    elements: Floats
    width: int

    @property
    def block(self) -> int:
        """The number of elements of a block: those of a line of a cache of f16, if they divide a head."""
        return BLOCK if self.width % BLOCK == 0 else self.k.cpu.lanes(f32)

    def steps(self, row: Value, head: Value, block: Value) -> list[Value]:
        """Return the vectors of a block of a head."""
        first = head * self.width + block * self.block
        return [self.elements[row, self.k.at(first + i)] for i in range(0, self.block, self.k.cpu.lanes(f32))]

    def prefetch(self, row: Value, head: Value, block: Value) -> None:
        """Ask the CPU to load a block of a head."""
        elements = self.elements if isinstance(self.elements, Buffer) else self.elements.bits
        self.k.prefetch(elements, row, head * self.width + block * self.block)


@dataclass(frozen=True)
class CachedBlocks:
    """The heads of a cache of packed blocks.

    The scale of a block is next to its integers: the bytes of a head are consecutive, and a cache is one tensor, whose rows are
    copied as others are. Scales in a tensor of their own would take another line of the CPU's cache for each head.

    Attributes:
        k: The kernel.
        code: The bytes.
        row_bytes: The number of bytes of a row.
        width: The number of elements of a head.
    """

    k: Kernel
    code: PackedBytes
    row_bytes: int
    width: int

    @property
    def block(self) -> int:
        """The number of elements of a block."""
        return BLOCK

    def steps(self, row: Value, head: Value, block: Value) -> list[Value]:
        """Return the vectors of a block of a head, before they are multiplied by its scale."""
        return [step.to(f32) for step in FORMATS[_SCHEME.name].steps(self.code, self._position(row, head, block))]

    def scale(self, row: Value, head: Value, block: Value) -> Value:
        """Return the scale of a block of a head."""
        return FORMATS[_SCHEME.name].factor(self.code, self._position(row, head, block))

    def prefetch(self, row: Value, head: Value, block: Value) -> None:
        """Ask the CPU to load a block of a head."""
        self.k.prefetch(self.code.bytes, self._position(row, head, block))

    def elements(self, row: Value, head: Value, block: Value) -> list[Value]:
        """Return the vectors of a block of a head."""
        scale = self.scale(row, head, block)
        return [step * scale.splat(self.code.width) for step in self.steps(row, head, block)]

    def _position(self, row: Value, head: Value, block: Value) -> Value:
        blocks = self.width // BLOCK
        return row * self.row_bytes + (head * blocks + block) * _SCHEME.nbytes


@dataclass(frozen=True)
class UnpackedTile:
    """Elements of a packed cache in scratch memory.

    Attributes:
        cache: The cache.
        memory: The elements of some rows, and of some blocks of one head.
    """

    cache: CachedBlocks
    memory: Buffer

    def unpack(self, row: Value, head: Value, block: Value, count: Size) -> None:
        """Unpack blocks from `block` on of some rows."""
        k, width = self.cache.k, self.cache.code.width
        columns = self.memory.shape[1]
        assert isinstance(columns, int)
        for i in k.range(count):
            for number in range(columns // BLOCK):
                for place, vector in enumerate(self.cache.elements(row + i, head, block + number)):
                    self.memory[i, k.at(number * BLOCK + place * width)] = vector


def cached_heads(k: Kernel, cache: Buffer, width: int, scheme: str | None) -> CachedFloats | CachedBlocks:
    """Return the elements of a cache.

    Args:
        k: The kernel.
        cache: The cache.
        width: The number of elements of a head.
        scheme: The format of packed rows, or None.
    """
    return CachedFloats(k, floats(cache.rows()), width) if scheme is None else _cached_blocks(k, cache, width)


def unpacked_tile(k: Kernel, cache: Buffer, width: int, sizes: tuple[int, int]) -> UnpackedTile:
    """Return scratch memory of rows and columns for elements of a packed cache with heads of a width."""
    return UnpackedTile(_cached_blocks(k, cache, width), k.scratch(*sizes))


def _cached_blocks(k: Kernel, cache: Buffer, width: int) -> CachedBlocks:
    pool, length, row_bytes = cache.shape
    assert isinstance(row_bytes, int)
    code = PackedBytes(k, cache.view(product([pool, length, row_bytes])), k.cpu.lanes(f32))
    return CachedBlocks(k, code, row_bytes, width)


def row_elements(cache: Buffer, scheme: str | None) -> int:
    """Return the number of elements of a row of a cache."""
    width = cache.shape[2]
    assert isinstance(width, int)
    return width if scheme is None else width // _SCHEME.nbytes * _SCHEME.block
