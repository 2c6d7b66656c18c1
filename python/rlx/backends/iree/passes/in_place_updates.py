"""`rlx-iree-in-place-updates`: states that are computed from themselves element by element are written where they are.

By itself IREE computes a new state into a new buffer, and keeps that. Of an optimiser's step that is as much memory as
the parameters and all their moments, which is written without having been read. Quirks: `new-states`, `equal-globals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.backends.iree.names import GETTER, SETTER, symbol_of
from rlx.backends.iree.passes.base import IreePass, create, elementwise, hidden
from rlx.backends.iree.passes.workgroups import overwriting, overwritten
from rlx.ir.signature import bodies


@dataclass(frozen=True)
class InPlaceUpdates(IreePass, name="rlx-iree-in-place-updates"):
    """Make one kernel of the loops that compute states of one size from each other, which overwrites the states, for IREE.

    The loops are elementwise, of a known size, and nothing else uses what they compute. A state that is needed by other
    ops is overwritten behind the last of them. All other states are left alone, and so are those that might share their
    memory with another one: that get a value in any other way, or whose value another state gets.
    """

    def apply(self, module: Any) -> None:
        functions = bodies(module)
        kernels = _kept([f for f in functions if not f.name.value.startswith((GETTER, SETTER))])
        for kernel in kernels:
            kernel.emit()
        for kernel in kernels:  # only now: one may have been put before a loop of another's
            kernel.erase_loops()
        written = frozenset(_global(store.op) for kernel in kernels for store in kernel.stores)
        _initialise(module, written)
        for setter in functions:
            name = setter.name.value
            if name.startswith(SETTER) and symbol_of("state", name.removeprefix(SETTER)) in written:
                _set_in_place(setter)


@dataclass(frozen=True)
class _Store:
    """A state that gets another value: the op that stores it, and the state's present value."""

    op: Any
    old: Any

    @property
    def new(self) -> Any:
        return self.op.operands[0]


def _kept(functions: Sequence[Any]) -> list[_Kernel]:
    """The kernels to make of functions, of one block each, that load states from globals and store them."""
    kernels, stored, leaked = [], set(), set()
    for function in functions:
        made, stores, leaks = _kernels([op.operation for op in function.entry_block.operations])
        kernels += made
        stored |= stores
        leaked |= leaks
    while True:
        covered = {store.op for kernel in kernels for store in kernel.stores}
        shared = leaked | {_global(op) for op in stored - covered}
        kept = [k for k in kernels if not shared & {_global(store.op) for store in k.stores}]
        if len(kept) == len(kernels):
            return kept
        kernels = kept


def _set_in_place(setter: Any) -> None:
    """Have a function that sets a state write into its memory."""
    (store,) = [op.operation for op in setter.entry_block.operations if op.operation.name == "util.global.store"]
    (value,) = store.operands
    with mlir.ir.InsertionPoint(store):
        old = create("util.global.load", [value.type], attributes={"global": store.attributes["global"]}).result
        store.operands[0] = overwritten(old, value)


def _global(op: Any) -> str:
    """The name of the global that an op loads or stores."""
    return op.attributes["global"].value


def _initialise(module: Any, names: frozenset[str]) -> None:
    """Have globals filled when the program is loaded: those of equal initial values would share their memory."""
    ir = mlir.ir
    for op in [op.operation for op in module.body.operations]:
        if op.name != "util.global" or op.attributes["sym_name"].value not in names:
            continue
        value, name = op.attributes["initial_value"], op.attributes["sym_name"].value
        del op.attributes["initial_value"]
        signature = {"function_type": ir.TypeAttr.get(ir.FunctionType.get([], []))}
        filler = create("util.initializer", attributes=signature, regions=1, ip=ir.InsertionPoint.after(op))
        with ir.InsertionPoint(filler.regions[0].blocks.append()):
            scalar = mlir.dialect("arith").constant(value.type.element_type, value.get_splat_value())
            fenced = hidden(scalar)
            filled = create("flow.tensor.splat", [value.type], [fenced]).result
            create("util.global.store", operands=[filled], attributes={"global": ir.FlatSymbolRefAttr.get(name)})
            create("util.return")


def _kernels(ops: Sequence[Any]) -> tuple[list[_Kernel], set[Any], set[str]]:
    """What could become kernels of a function, the ops that store states, and the states whose values others get."""
    place = {op: i for i, op in enumerate(ops)}
    loads = {_global(op): op.results[0] for op in ops if op.name == "util.global.load"}
    storing = {op for op in ops if op.name == "util.global.store"}
    leaked = {name for name, value in loads.items() if _last_use(value, place, set()) is None}
    stores: dict[Any, _Store] = {}
    for op in storing:
        old, (new,) = loads.get(_global(op)), op.operands
        if old is not None and old.type == new.type:
            stores[new] = _Store(op, old)
    kernels = []
    fences = _Fences(ops, place)
    for group in _groups(_loops(ops, stores)):
        kernel = _Kernel(ops, place, fences, group, [stores[op.results[0]] for op in group if op.results[0] in stores])
        if kernel.behind is not None:
            kernels.append(kernel)
    return kernels, storing, leaked


def _last_use(value: Any, place: dict[Any, int], kernel: set[Any]) -> int | None:
    """The position of the last op outside of a kernel that reads a value, or what may lie in its memory.

    None if the value may live on under another name: stored, returned, carried by a loop or read by the kernel.
    """
    last, names = -1, [value]
    while names:
        name = names.pop()
        for use in name.uses:
            user = op = use.owner.operation
            if op in kernel:
                if name == value:
                    continue
                return None
            last = max(last, _position(op, place))
            if user.name.startswith("linalg."):  # whose results are tensors of their own
                continue
            if len(user.regions) or not len(user.results):
                return None
            names += user.results
    return last


def _loops(ops: Sequence[Any], stores: dict[Any, _Store]) -> list[Any]:
    """The elementwise loops of which nothing but other such loops, and stores, use the results."""
    loops: dict[Any, None] = {}
    for op in reversed(ops):
        if not _is_elementwise(op):
            continue
        result = op.results[0]
        stored = stores.get(result)
        users = [use.owner.operation for use in result.uses]
        if users and all(
            (stored and user == stored.op) or (user in loops and _reads_alike(user, result)) for user in users
        ):
            loops[op] = None
    return list(loops)


def _is_elementwise(op: Any) -> bool:
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    type_ = op.results[0].type
    if not type_.rank or not type_.has_static_shape or 0 in type_.shape or not _is_plain(type_.element_type):
        return False
    iterators, maps = op.attributes["iterator_types"], [m.value for m in op.attributes["indexing_maps"]]
    if any("parallel" not in str(i) for i in iterators) or maps[-1] != mlir.ir.AffineMap.get_identity(type_.rank):
        return False
    (*_, out), *_ = [list(b.arguments) for b in op.regions[0].blocks]
    return not list(out.uses) and _is_closed(op.regions[0].blocks[0])


def _is_plain(element: Any) -> bool:
    """Whether an element type has whole bytes in memory."""
    ir = mlir.ir
    return isinstance(element, ir.FloatType) or (isinstance(element, ir.IntegerType) and element.width >= 8)


def _is_closed(body: Any) -> bool:
    """Whether a body reads nothing from outside but constants, and has no regions."""
    inside = set(body.arguments)
    for op in body.operations:
        if len(op.operation.regions):
            return False
        for value in op.operation.operands:
            if value not in inside and not _is_constant(value):
                return False
        inside.update(op.operation.results)
    return True


def _is_constant(value: Any) -> bool:
    owner = value.owner
    return not isinstance(owner, mlir.ir.Block) and owner.operation.name == "arith.constant"


def _reads_alike(op: Any, value: Any) -> bool:
    """Whether a loop reads a value only at the place that it computes."""
    maps = [m.value for m in op.attributes["indexing_maps"]]
    return all(maps[i] == maps[-1] for i, operand in enumerate(op.operands) if operand == value)


def _groups(loops: Sequence[Any]) -> list[list[Any]]:
    """Loops that use each other's results."""
    group_of: dict[Any, list[Any]] = {op: [op] for op in loops}
    for op in loops:
        for use in op.results[0].uses:
            group, other = group_of[op], group_of.get(use.owner.operation)
            if other is not None and other is not group:
                group += other
                group_of |= dict.fromkeys(other, group)
    return list({id(group): group for group in group_of.values()}.values())


class _Fences:
    """Which fences (`util.optimization_barrier`) the ops of a block come before, and which behind: bits by position.

    What a fence reads is executed by itself, and IREE lets others wait for that only if they need its result. A kernel that
    overwrites a state must not start before all that read the state for a fence have ended: so it has to need that fence.
    Quirk: `fences-overtaken`.
    """

    def __init__(self, ops: Sequence[Any], place: dict[Any, int]):
        fences = [i for i, op in enumerate(ops) if op.name == "util.optimization_barrier"]
        bits = {position: 1 << i for i, position in enumerate(fences)}
        self.before, self.behind = [0] * len(ops), [0] * len(ops)
        if not bits:
            return
        users = [{_position(use.owner.operation, place) for r in op.results for use in r.uses} for op in ops]
        for i in range(len(ops)):
            self.behind[i] |= bits.get(i, 0)
            for user in users[i]:
                self.behind[user] |= self.behind[i]
        for i in reversed(range(len(ops))):
            self.before[i] |= bits.get(i, 0)
            for user in users[i]:
                self.before[i] |= bits.get(user) or self.before[user]


def _position(op: Any, place: dict[Any, int]) -> int:
    """The position of an op of a block, or of the one that holds it."""
    while op not in place:
        op = op.parent.operation
    return place[op]


class _Kernel:
    """Some loops, to become one kernel.

    Args:
        ops: Those of the block.
        place: The position of each of them.
        fences: Those of the block.
        group: The loops.
        stores: Of their results.

    Attributes:
        behind: The position of the last op that has to come before this; None if a state cannot be overwritten.
    """

    def __init__(
        self, ops: Sequence[Any], place: dict[Any, int], fences: _Fences, group: Sequence[Any], stores: Sequence[_Store]
    ):
        self.ops, self.place, self.fences, self.stores = ops, place, fences, stores
        self.group = sorted(group, key=place.__getitem__)
        self.states = [s.old for s in stores]
        results = {op.results[0] for op in group}
        self.reads: dict[tuple[Any, str], Any] = {}  # by value and map, with the map
        for op in self.group:
            maps = [m.value for m in op.attributes["indexing_maps"]]
            for value, map_ in zip(list(op.operands)[:-1], maps, strict=False):
                if value not in results:
                    self.reads.setdefault((value, str(map_)), map_)
        self.behind = self._last_before()

    def _last_before(self) -> int | None:
        loops, last = set(self.group), -1
        if len(set(self.states)) < len(self.states):
            return None
        for state in self.states:
            used = _last_use(state, self.place, loops)
            if used is None or not all(_reads_alike(op, state) for op in loops):
                return None
            last = max(last, used)
        owners = [value.owner for value, _ in self.reads]
        makers = [self.place[o.operation] for o in owners if not isinstance(o, mlir.ir.Block)]
        return None if self._may_overtake(makers) else max([last, *makers])

    def _may_overtake(self, makers: Sequence[int]) -> bool:
        """Whether the kernel, which needs what these make, may start before another reader of a state has ended."""
        needed = awaited = 0
        for state in self.states:
            for use in state.uses:
                needed |= self.fences.before[_position(use.owner.operation, self.place)]
        for maker in makers:
            awaited |= self.fences.behind[maker]
        return bool(needed & ~awaited)

    def emit(self) -> None:
        """Emit the kernel, and store what it computes."""
        assert self.behind is not None
        with mlir.ir.InsertionPoint(self.ops[self.behind + 1]), self.group[-1].location:
            read = dict.fromkeys(value for value, _ in self.reads if value not in self.states)
            computed = overwriting(self.states, list(read), self._loop)
            for store, new in zip(self.stores, computed, strict=True):
                store.op.operands[0] = new

    def erase_loops(self) -> None:
        """Erase the loops, whose results nothing uses any more."""
        for op in reversed(self.group):
            op.erase()

    def _loop(self, loaded: dict[Any, Any]) -> list[Any]:
        """All loops as one, over what the kernel has loaded."""
        reads = {key: map_ for key, map_ in self.reads.items() if key[0] not in self.states}
        identity = str(mlir.ir.AffineMap.get_identity(self.states[0].type.rank))

        def body(block: Any) -> list[Any]:
            scalars = dict(zip([*reads, *((s, identity) for s in self.states)], block.arguments, strict=True))
            computed: dict[Any, Any] = {}
            for loop in self.group:
                computed[loop.results[0]] = _inlined(loop, scalars, computed)
            return [computed[s.new] for s in self.stores]

        return elementwise([(loaded[v], m) for (v, _), m in reads.items()], [loaded[s] for s in self.states], body)


def _inlined(loop: Any, scalars: dict[tuple[Any, str], Any], computed: dict[Any, Any]) -> Any:
    """What a loop computes for one element.

    Args:
        loop: The loop.
        scalars: Elements of what is read, by value and map.
        computed: Elements of results.
    """
    body = loop.regions[0].blocks[0]
    values: dict[Any, Any] = {}
    maps = [str(m.value) for m in loop.attributes["indexing_maps"]]
    for argument, operand, map_ in zip(list(body.arguments)[:-1], loop.operands, maps, strict=False):
        values[argument] = computed[operand] if operand in computed else scalars[operand, map_]
    *ops, end = [op.operation for op in body.operations]
    for op in ops:
        copy = op.clone()
        for i, operand in enumerate(op.operands):
            if operand in values:
                copy.operands[i] = values[operand]
            else:  # a constant outside
                constant = operand.owner.operation.clone()
                constant.move_before(copy)
                copy.operands[i] = constant.results[0]
        values |= zip(op.results, copy.results, strict=True)
    (result,) = end.operands
    return values.get(result, result)
