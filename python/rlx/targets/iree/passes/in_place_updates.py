"""`rlx-iree-in-place-updates`: updates states in place if their new values are elementwise functions of the old values.

Without this pass IREE writes the new value of a state to a new buffer, which replaces the old one. For a step of an optimiser,
the new buffers have the size of the parameters and all their moments, and are written without having been read. Quirks:
`new-states`, `equal-globals`, `half-numbers`, `kernels-overtaken`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from struct import pack
from typing import Any

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.op.signature import bodies
from rlx.targets.iree.names import GETTER, SETTER, symbol_of
from rlx.targets.iree.passes.base import IreePass, behind_barrier, create, elementwise, is_elementwise
from rlx.targets.iree.passes.execution_order import (
    ExecutionOrder,
    execute_in_order,
    makes_new_tensors,
    position_in_block,
)
from rlx.targets.iree.passes.workgroups import needing, overwriting, overwritten


@dataclass(frozen=True)
class InPlaceUpdates(IreePass, name="rlx-iree-in-place-updates"):
    """Merge the loops that compute states of one size from each other into one kernel that overwrites the states, for IREE.

    The loops must be elementwise and of static size, and other ops must not use their results. A state that other ops use is
    overwritten after the last of them. The pass skips all other states, but gives those into which slices are written memory
    of their own, which IREE overwrites. It also skips states that might share memory with
    another state: those that have other stores, and those whose value is stored in another state.
    """

    def run(self, module: mlir.Module) -> None:
        functions = bodies(module)
        kernels = _valid_kernels([f for f in functions if not f.name.value.startswith((GETTER, SETTER))])
        if kernels:
            execute_in_order(module)
        for order in dict.fromkeys(kernel.order for kernel in kernels if kernel.is_last):
            ordered = [kernel for kernel in kernels if kernel.order is order]
            reads = [value for kernel in ordered for value, _ in kernel.reads]
            order.wait_for(reads, {result for kernel in ordered for result in kernel.results})
        for kernel in kernels:
            kernel.emit()
        for kernel in kernels:  # not earlier: a kernel may have been inserted before a loop of another one
            kernel.erase_loops()
        written = frozenset(_global(store.op) for kernel in kernels for store in kernel.stores) | _written_slices(
            functions
        )
        _initialise(module, written)
        for setter in functions:
            name = setter.name.value
            if name.startswith(SETTER) and symbol_of("state", name.removeprefix(SETTER)) in written:
                _set_in_place(setter)


@dataclass(frozen=True)
class _Store:
    """A store of a new state value: the op, and the old value of the state."""

    op: Any
    old: Any

    @property
    def new(self) -> Any:
        return self.op.operands[0]


def _valid_kernels(functions: Sequence[Any]) -> list[_JoinedLoops]:
    """Return the kernels to create in functions of one block that load and store globals of states."""
    kernels, stored, leaked = [], set(), set()
    for function in functions:
        candidates, stores, leaks = _kernels([op.operation for op in function.entry_block.operations])
        kernels += candidates
        stored |= stores
        leaked |= leaks
    while True:
        covered = {store.op for kernel in kernels for store in kernel.stores}
        shared = leaked | {_global(op) for op in stored - covered}
        valid = [k for k in kernels if not shared & {_global(store.op) for store in k.stores}]
        if len(valid) == len(kernels):
            return valid
        kernels = valid


def _written_slices(functions: Sequence[Any]) -> frozenset[str]:
    """Return the states whose new value is the old value of a state with slices written into it: IREE reuses the memory."""
    names: set[str] = set()
    for function in functions:
        for op in [op.operation for op in function.entry_block.operations]:
            if op.name != "util.global.store":
                continue
            value = op.operands[0]
            while (
                maker := getattr(value.owner, "operation", None)
            ) is not None and maker.name == "tensor.insert_slice":
                value = maker.operands[1]
            if value != op.operands[0] and maker is not None and maker.name == "util.global.load":
                names |= {_global(op), _global(maker)}
    return frozenset(names)


def _set_in_place(setter: Any) -> None:
    """Make a function that sets a state write to the memory of the state."""
    (store,) = [op.operation for op in setter.entry_block.operations if op.operation.name == "util.global.store"]
    (value,) = store.operands
    with mlir.ir.InsertionPoint(store):
        old = create("util.global.load", [value.type], attributes={"global": store.attributes["global"]}).result
        store.operands[0] = overwritten(old, value)


def _global(op: Any) -> str:
    """Return the name of the global that an op loads or stores."""
    return op.attributes["global"].value


def _initialise(module: Any, names: frozenset[str]) -> None:
    """Fill globals when the program is loaded. Globals with equal initial values would otherwise share memory."""
    ir = mlir.ir
    for op in [op.operation for op in module.body.operations]:
        if op.name != "util.global" or op.attributes["sym_name"].value not in names:
            continue
        if "initial_value" not in op.attributes:  # an initializer already fills it
            continue
        value, name = op.attributes["initial_value"], op.attributes["sym_name"].value
        del op.attributes["initial_value"]
        signature = {"function_type": ir.TypeAttr.get(ir.FunctionType.get([], []))}
        filler = create("util.initializer", attributes=signature, regions=1, ip=ir.InsertionPoint.after(op))
        with ir.InsertionPoint(filler.regions[0].blocks.append()):
            filled = _filled(value.type, value.get_splat_value())
            create("util.global.store", operands=[filled], attributes={"global": ir.FlatSymbolRefAttr.get(name)})
            create("util.return")


def _filled(type_: Any, number: Any) -> Any:
    """Return a tensor filled with a number that is unknown to the compiler. Quirk: `half-numbers`."""
    ir, arith, element = mlir.ir, mlir.dialect("arith"), type_.element_type
    if not isinstance(element, ir.FloatType) or element.width != 16:
        return create("flow.tensor.splat", [type_], [behind_barrier(arith.constant(element, number))]).result
    word = ir.IntegerType.get_signless(16)
    in_bytes = pack("<e", number.value) if isinstance(element, ir.F16Type) else pack("<f", number.value)[2:]
    bits = arith.constant(word, ir.IntegerAttr.get(word, int.from_bytes(in_bytes, "little", signed=True)))
    words = create("flow.tensor.splat", [ir.RankedTensorType.get(type_.shape, word)], [behind_barrier(bits)]).result
    sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0])}
    return create("flow.tensor.bitcast", [type_], [words], sizes).result


def _kernels(ops: Sequence[Any]) -> tuple[list[_JoinedLoops], set[Any], set[str]]:
    """Return candidate kernels of a function, the ops that store states, and the states that are stored in other states."""
    position = {opview.key(op): i for i, op in enumerate(ops)}
    loads = {_global(op): op.results[0] for op in ops if op.name == "util.global.load"}
    store_ops = {op for op in ops if op.name == "util.global.store"}
    leaked = {name for name, value in loads.items() if _last_use(value, position, set()) is None}
    stores: dict[Any, _Store] = {}
    for op in store_ops:
        old, (new,) = loads.get(_global(op)), op.operands
        if old is not None and old.type == new.type:
            stores[new] = _Store(op, old)
    order = ExecutionOrder(ops, position)

    def kernel(group: Sequence[Any]) -> _JoinedLoops:
        return _JoinedLoops(
            ops, position, order, group, [stores[op.results[0]] for op in group if op.results[0] in stores]
        )

    kernels = [k for k in map(kernel, _groups(_loops(ops, stores))) if k.last_before is not None]
    return _apart(kernels, kernel), store_ops, leaked


def _apart(kernels: list[_JoinedLoops], joined: Callable[[Sequence[Any]], _JoinedLoops]) -> list[_JoinedLoops]:
    """Make kernels independent: no kernel may overwrite a state that another kernel reads. Quirk: `kernels-overtaken`.

    Kernels that read each other's states are merged into one kernel, which reads each element of all their states before it
    writes any. If that is impossible, a kernel that would overwrite the state of another one is omitted, and its state gets a
    new buffer.
    """
    while True:
        made_by = {opview.key(op): kernel for kernel in kernels for op in kernel.group}
        before: dict[_JoinedLoops, dict[_JoinedLoops, None]] = {}  # in deterministic order
        for kernel in kernels:
            readers = (made_by.get(key) for state in kernel.states for key in _readers(state))
            before[kernel] = dict.fromkeys(r for r in readers if r is not None and r is not kernel)
        try:
            ordered = list(TopologicalSorter(before).static_order())
        except CycleError as error:
            cycle = [kernel for kernel in kernels if kernel in error.args[1]]
            is_one_size = len({tuple(state.type.shape) for kernel in cycle for state in kernel.states}) == 1
            together = joined([op for kernel in cycle for op in kernel.group]) if is_one_size else None
            instead = cycle[1:] if together is None or together.last_before is None else [together]
            kernels = [*(kernel for kernel in kernels if kernel not in cycle), *instead]
            continue
        kept: set[_JoinedLoops] = set()
        for kernel in ordered:
            if kept.isdisjoint(before[kernel]):
                kept.add(kernel)
        return [kernel for kernel in kernels if kernel in kept]


def _readers(state: Any) -> Iterator[Any]:
    """Yield the keys of the ops that read a state, or a value that may share its memory."""
    return (opview.key(op) for op, _ in _uses(state))


def _last_use(value: Any, position: dict[Any, int], kernel: set[Any]) -> int | None:
    """Return the position of the last op outside a kernel that reads a value, or a value that may share its memory.

    None if the value may be used under another name: stored, returned, carried by a loop or read by the kernel. The kernel is
    given by its results.
    """
    last = -1
    for op, alias in _uses(value):
        if opview.key(op) in kernel:
            if alias == value:
                continue
            return None
        if not makes_new_tensors(op) and (len(op.regions) or not len(op.results)):
            return None
        last = max(last, position_in_block(op, position))
    return last


def _uses(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the ops that read a value, or a value that may share its memory, each with the value that it reads."""
    seen, aliases = {value}, [value]
    while aliases:
        alias = aliases.pop()
        for use in alias.uses:
            user = use.owner.operation
            yield user, alias
            if not makes_new_tensors(user):
                aliases += (result for result in user.results if result not in seen)
                seen.update(user.results)


def _loops(ops: Sequence[Any], stores: dict[Any, _Store]) -> list[Any]:
    """Return the elementwise loops whose results are used only by other loops of this kind and by stores."""
    loops: dict[Any, Any] = {}
    for op in reversed(ops):
        if not _is_elementwise(op):
            continue
        result = op.results[0]
        stored = stores.get(result)
        users = [use.owner.operation for use in result.uses]
        if users and all(
            (stored and user == stored.op) or (opview.key(user) in loops and _reads_alike(user, result))
            for user in users
        ):
            loops[result] = op
    return list(loops.values())


def _is_elementwise(op: Any) -> bool:
    if not is_elementwise(op):
        return False
    type_ = op.results[0].type
    if not type_.rank or not type_.has_static_shape or 0 in type_.shape or not _is_plain(type_.element_type):
        return False
    maps = [m.value for m in op.attributes["indexing_maps"]]
    if maps[-1] != mlir.ir.AffineMap.get_identity(type_.rank):
        return False
    (*_, out), *_ = [list(b.arguments) for b in op.regions[0].blocks]
    return not list(out.uses) and _is_closed(op.regions[0].blocks[0])


def _is_plain(element: Any) -> bool:
    """Whether an element type uses whole bytes in memory."""
    ir = mlir.ir
    return isinstance(element, ir.FloatType) or (isinstance(element, ir.IntegerType) and element.width >= 8)


def _is_closed(body: Any) -> bool:
    """Whether a body has no regions, and uses only constants from outside."""
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
    """Whether a loop reads a value only at the index of the element that it computes."""
    maps = [m.value for m in op.attributes["indexing_maps"]]
    return all(maps[i] == maps[-1] for i, operand in enumerate(op.operands) if operand == value)


def _groups(loops: Sequence[Any]) -> list[list[Any]]:
    """Return groups of loops that use each other's results."""
    group_of: dict[Any, list[Any]] = {op.results[0]: [op] for op in loops}
    for op in loops:
        for use in op.results[0].uses:
            group, other = group_of[op.results[0]], group_of.get(opview.key(use.owner.operation))
            if other is not None and other is not group:
                larger, smaller = (group, other) if len(group) >= len(other) else (other, group)
                larger += smaller
                group_of.update((member.results[0], larger) for member in smaller)
    return list({id(group): group for group in group_of.values()}.values())


class _JoinedLoops:
    """Loops that become one kernel.

    Args:
        ops: The ops of the block.
        position: The position of each op.
        order: The execution order.
        group: The loops.
        stores: The ops that store their results.

    Attributes:
        is_last: Whether the kernel is at the end, and waits for all visible values.
        last_before: The position of the last op that must precede the kernel; None if a state cannot be overwritten.
    """

    def __init__(
        self,
        ops: Sequence[Any],
        position: dict[Any, int],
        order: ExecutionOrder,
        group: Sequence[Any],
        stores: Sequence[_Store],
    ):
        self.ops, self.position, self.order, self.stores = ops, position, order, stores
        self.group = sorted(group, key=lambda op: position[opview.key(op)])
        self.states = [s.old for s in stores]
        self.results = {op.results[0] for op in group}
        self.reads: dict[tuple[Any, str], Any] = {}  # by value and map, with the map
        for op in self.group:
            maps = [m.value for m in op.attributes["indexing_maps"]]
            for value, map_ in zip(list(op.operands)[:-1], maps, strict=False):
                if value not in self.results:
                    self.reads.setdefault((value, str(map_)), map_)
        self.is_last = False
        self.last_before = self._position_of_last_before()

    def _position_of_last_before(self) -> int | None:
        last = -1
        if len(set(self.states)) < len(self.states):
            return None
        for state in self.states:
            last_use = _last_use(state, self.position, self.results)
            if last_use is None or not all(_reads_alike(op, state) for op in self.group):
                return None
            last = max(last, last_use)
        owners = [value.owner for value in (*self.states, *(v for v, _ in self.reads))]
        makers = [self.position[opview.key(o.operation)] for o in owners if not isinstance(o, mlir.ir.Block)]
        last = max([last, *makers])
        operands = [value for value, _ in self.reads]
        self.is_last = not self.order.holds(self.states, self.group, operands, last)
        return None if self.is_last and not self.order.can_wait() else last

    def emit(self) -> None:
        """Emit the kernel, and store its results."""
        assert self.last_before is not None
        after = self.ops[-1] if self.is_last else self.ops[self.last_before + 1]
        with mlir.ir.InsertionPoint(after), self.group[-1].location:
            read = dict.fromkeys(value for value, _ in self.reads if value not in self.states)
            token = self.order.token if self.is_last else None
            computed = overwriting(self.states, [*read, *([] if token is None else [token])], self._loop)
            for store, new in zip(self.stores, computed, strict=True):
                store.op.operands[0] = new
                if self.is_last:
                    store.op.move_before(after)

    def erase_loops(self) -> None:
        """Erase the loops, whose results are no longer used."""
        for op in reversed(self.group):
            op.erase()

    def _loop(self, loaded: dict[Any, Any]) -> list[Any]:
        """Emit all loops as one loop over the loaded tensors."""
        ir, rank = mlir.ir, self.states[0].type.rank
        reads = {key: map_ for key, map_ in self.reads.items() if key[0] not in self.states}
        identity = str(ir.AffineMap.get_identity(rank))
        inputs = [(loaded[v], m) for (v, _), m in reads.items()]
        token = loaded.get(self.order.token)
        if token is not None:
            inputs.append((token, ir.AffineMap.get(rank, 0, [ir.AffineConstantExpr.get(0)])))

        def body(block: Any) -> list[Any]:
            elements = list(block.arguments)
            waited = elements.pop(len(reads)) if token is not None else None
            scalars = dict(zip([*reads, *((s, identity) for s in self.states)], elements, strict=True))
            computed: dict[Any, Any] = {}
            for loop in self.group:
                computed[loop.results[0]] = _inlined(loop, scalars, computed)
            new = [computed[s.new] for s in self.stores]
            return new if waited is None else needing(waited, new, elements[len(reads) :])

        return elementwise(inputs, [loaded[s] for s in self.states], body)


def _inlined(loop: Any, scalars: dict[tuple[Any, str], Any], computed: dict[Any, Any]) -> Any:
    """Emit the body of a loop, and return the computed element.

    Args:
        loop: The loop.
        scalars: The loaded elements, by value and map.
        computed: The elements of other loops' results.
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
            else:  # a constant from outside
                constant = operand.owner.operation.clone()
                constant.move_before(copy)
                copy.operands[i] = constant.results[0]
        values |= zip(op.results, copy.results, strict=True)
    (result,) = end.operands
    return values.get(result, result)
