"""Positions of keys and values in caches, for the kernels of `cached_attention`."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.kernels.buffer import Buffer, Size, greatest
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value
from rlx.ops.attention.cached import heads_of_cache
from rlx.ops.attention.heads import Heads

# Keys whose scores are computed together, from a multiple of this number on: a multiple of the lanes of all CPUs. Kernels
# take pages whose rows are a multiple of it, so that these keys are in one page.
KEYS_AT_ONCE = 64


def sizes_of_cache(case: KernelCase) -> Heads:
    q, k, v, _, pages = case.operands
    return heads_of_cache(q, k, v, pages, case.attributes["num_heads"], case.attributes["head_dim"])  # type: ignore[arg-type]


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
