"""The bugs to plant: typical mistakes in rules. Each is located by its text."""

from __future__ import annotations

from dataclasses import dataclass

# The tests that check the semantics of rules on generated cases.
JUDGES = ("tests/conformance", "tests/transforms", "tests/passes", "tests/plan")


@dataclass(frozen=True)
class Mutation:
    """One bug.

    Attributes:
        name: The mistake.
        old: Text that occurs once in the package.
        new: The replacement.
        likely: The tests that should find it and are run first, in the syntax of pytest's `-k`.
        folders: The folders of the tests.
    """

    name: str
    old: str
    new: str
    likely: str
    folders: tuple[str, ...] = JUDGES


MUTATIONS = (
    # --- derivatives and batching -----------------------------------------------------------------
    Mutation(
        "softmax: a term of the derivative is dropped",
        "product_ - wide * b.sum(product_, axis, keep_dims=True)",
        "product_",
        "test_rules and softmax",
    ),
    Mutation(
        "cos: the derivative has the wrong sign",
        "Slopes(first=lambda b, x: -b.sin(x)",
        "Slopes(first=lambda b, x: b.sin(x)",
        "test_rules and activation",
    ),
    Mutation(
        "matmul: the cotangent is not transposed",
        "dots(b, dy, adjoint(b, rhs), DotDims((dy.rank - 1,), (1,)))",
        "dots(b, dy, adjoint(b, rhs), DotDims((dy.rank - 1,), (0,)))",
        "test_rules and matmul",
    ),
    Mutation(
        "where: both sides take the cotangent of the first",
        "(condition, dy, zero) if true else (condition, zero, dy)",
        "(condition, dy, zero)",
        "test_rules and where",
    ),
    Mutation(
        "narrow: batched along the wrong axis",
        'b.emit("narrow", operands, axis=axis + 1, **attributes)',
        'b.emit("narrow", operands, axis=max(axis, 1), **attributes)',
        "test_rules and narrow",
    ),
    # --- decompositions and clean-up --------------------------------------------------------------
    Mutation(
        "layer_norm: decomposed with the wrong weight added",
        "weights = [along(b, statistics_input(b, w), axis, x.rank) for w in (scale, bias)]\n"
        "        return cast(b, normal * weights[0] + weights[1], x.dtype)",
        "weights = [along(b, statistics_input(b, w), axis, x.rank) for w in (scale, bias)]\n"
        "        return cast(b, normal * weights[0] + weights[0], x.dtype)",
        "test_decomposition and layer_norm",
    ),
    Mutation(
        "simplify: 0 - x is x",
        "identity(x - 0, x, REAL)",
        "identity(0 - x, x, REAL)",
        "test_special_values or passes",
    ),
    Mutation(
        "simplify: x + 0 is x for floats",
        "identity(x + 0, x, (*INTEGERS, *BOOL))",
        "identity(x + 0, x, (*REAL, *BOOL))",
        "test_algebra or test_special_values",
    ),
    Mutation(
        "simplify: operands of all ops match in both orders",
        "commutes = trait is not None and part.kind in trait.cases",
        "commutes = trait is not None",
        "test_algebra",
    ),
    Mutation(
        "simplify: numbers are merged beyond the range of their dtype",
        "if not math.isfinite(nearest) or layout is None or 0 < abs(value) < layout.smallest_normal:",
        "if layout is None:",
        "test_algebra",
    ),
    Mutation(
        "simplify: a repeated variable matches two tensors",
        "return self.values.setdefault(part, value) == value",
        "return self.values.setdefault(part, value) is not None",
        "test_algebra",
    ),
    Mutation(
        "simplify: an integer fits a float that is one bit too narrow",
        "max(a.max, -a.min) <= min(2 ** (layout.mantissa + 1), b.part.max)",
        "max(a.max, -a.min) <= 2 ** (layout.mantissa + 9)",
        "passes",
    ),
    # --- lowering to linalg -----------------------------------------------------------------------
    Mutation(
        "linalg, concat: operands are swapped",
        "[*_pieces(lhs.value, axis), *_pieces(rhs.value, axis)]",
        "[*_pieces(rhs.value, axis), *_pieces(lhs.value, axis)]",
        "conformance and not xla and test_compiled and concat",
    ),
    Mutation(
        "linalg, narrow: begins one element early",
        "starts[axis] = start[0]\n",
        "starts[axis] = start[0] - 1 if type(start[0]) is int and start[0] > 0 else start[0]\n",
        "conformance and not xla and test_compiled and narrow",
    ),
    Mutation(
        "linalg, reduce: the largest of integers starts from 0",
        'return least if kind == "max" else greatest',
        'return 0 if kind == "max" else greatest',
        "test_programs_find_the_extremes_of_integers",
    ),
    Mutation(
        "linalg, gather: negative indices are not clamped",
        "arith.maxsi(arith.minsi(index, last), zero)",
        "arith.minsi(index, last)",
        "conformance and not xla and test_compiled and gather",
    ),
    Mutation(
        "linalg, cast: f64 is rounded to f16 twice",
        "if source is f64 and self.outer is not f32:",
        "if False:",
        "conformance and (test_compiled or test_levels) and (cast or conversions)",
    ),
    Mutation(
        "linalg, cumsum: exclusive ones include the element",
        "low.arith.CmpIPredicate.ult if self.exclusive else low.arith.CmpIPredicate.ule",
        "low.arith.CmpIPredicate.ule",
        "conformance and not xla and test_compiled and cumsum",
    ),
    # --- lowering to StableHLO --------------------------------------------------------------------
    Mutation(
        "stablehlo, scan: carries come back in another order",
        "return [emit.add(count, 1), *yielded[:num_carries], *stacked]",
        "return [emit.add(count, 1), *yielded[:num_carries][::-1], *stacked]",
        "test_compiled_xla and scan or transforms and xla",
    ),
    Mutation(
        "stablehlo, where: operands are swapped",
        "for x in (condition, on_true, on_false)))",
        "for x in (condition, on_false, on_true)))",
        "test_compiled_xla and where",
    ),
    Mutation(
        "stablehlo, cast: NaN becomes an extreme integer",
        "inside = emit.convert(emit.select(outside, 0, x), kind.compute)",
        "inside = emit.convert(emit.select(outside, float(kind.min), x), kind.compute)",
        "test_compiled_xla and cast",
    ),
    Mutation(
        "stablehlo, gather: the last row is never chosen",
        "emit.clamp(emit.convert(indices, i64), 0, max(size - 1, 0))",
        "emit.clamp(emit.convert(indices, i64), 0, max(size - 2, 0))",
        "test_compiled_xla and gather",
    ),
    # --- memory -----------------------------------------------------------------------------------
    Mutation(
        "liveness: what a loop reads from outside dies at its first reader",
        "        if outermost is None:\n            live.end",
        "        if outermost is not None or True:\n            live.end",
        "test_graphs_with_regions or test_blocks_of_models",
    ),
    Mutation(
        "in place: over an operand that is read again",
        "return operand.storage.end == step.index and self.may_write_over(step, i, k)",
        "return operand.storage.end <= step.index + 1 and self.may_write_over(step, i, k)",
        "test_graphs_of_the_whole_vocabulary",
    ),
    Mutation(
        "in place: over an operand that is broadcast elsewhere",
        "                o.offset == 0\n                and _trailing(o.shape.static) == _trailing(result.shape.static)\n",
        "                True\n",
        "test_an_operand_read_twice",
    ),
    Mutation(
        "a carry is overwritten before it is read for the last time",
        "            return variable.end < start\n",
        "            return True\n",
        "test_a_carry_that",
    ),
    Mutation(
        "carries that change places are copied one after the other",
        "if end is not None and yielded.storage in overwritten:",
        "if end is not None and yielded.storage not in overwritten:",
        "test_carries_that_change_places",
    ),
    Mutation(
        "placing: two values may overlap at the step where one follows the other",
        "(first[:k] <= end) & (last[:k] >= start)",
        "(first[:k] <= end) & (last[:k] > start)",
        "test_random_graphs_run_in_their_plan",
    ),
    Mutation(
        "narrow: a view begins at the wrong element",
        "        first += low * stride\n",
        "        first += low\n",
        "test_views",
    ),
    Mutation(
        "a concatenation has its second operand at the wrong place",
        "return [0, math.prod(dims)] if",
        "return [0, 0] if",
        "test_a_concatenation_is",
    ),
    Mutation(
        "a plan is read without a look at the neighbour below",
        "for _, other in active[max(0, at - 1) : at + 1]:",
        "for _, other in active[at : at + 1]:",
        "test_changed_plans or test_wrong_plans",
    ),
    Mutation(
        "the order of ops forgets what regions read",
        "    yield from step.captured\n",
        "    yield from ()\n",
        "test_what_regions_read_is_computed_before_them",
    ),
    # --- language models --------------------------------------------------------------------------
    Mutation(
        "sampling: the repetition penalty divides negative logits as well",
        "np.where(old > 0, old / options.repetition_penalty, old * options.repetition_penalty)",
        "old / options.repetition_penalty",
        "test_sampler",
        ("tests/llm",),
    ),
    Mutation(
        "sampling: min-p is relative to 1, and not to the likeliest token",
        "kept.max() + np.log(options.min_p)",
        "np.log(options.min_p)",
        "test_sampler",
        ("tests/llm",),
    ),
    Mutation(
        "cache: a page that two texts share has one user",
        "            self._uses[page] += 1\n        text.tokens, text.reusable",
        "            pass\n        text.tokens, text.reusable",
        "test_cache or test_pages",
        ("tests/llm",),
    ),
    Mutation(
        "cache: the recurrent state of a checkpoint is written",
        "self._uses[text.slots[length]] == 1",
        "self._uses[text.slots[length]] >= 1",
        "test_cache",
        ("tests/llm",),
    ),
    Mutation(
        "adapters: alpha and rank do not count",
        "scale = factor * own.scale",
        "scale = factor",
        "test_adapters",
        ("tests/models",),
    ),
    Mutation(
        "prediction head: the state comes before the embedding",
        'parts = [run.norm(head, "pre_fc_norm_embedding", tokens.rows(ids)), run.norm(head, "pre_fc_norm_hidden", hidden)]',
        'parts = [run.norm(head, "pre_fc_norm_hidden", hidden), run.norm(head, "pre_fc_norm_embedding", tokens.rows(ids))]',
        "test_prediction_head",
        ("tests/models",),
    ),
    Mutation(
        "GPTQ: the older format stores zero-points as the newer one",
        "numbers.astype(np.int32) + (not options.stores_zeros)",
        "numbers.astype(np.int32)",
        "test_quantized_folders",
        ("tests/models",),
    ),
    Mutation(
        "affine blocks: the bias is scaled",
        "return steps * scale + self.scale.read(blocks, self.scale.nbytes)",
        "return (steps + self.scale.read(blocks, self.scale.nbytes)) * scale",
        "test_layouts",
        ("tests/schemes",),
    ),
    Mutation(
        "matmul_transposed: a block has one row of terms",
        "            block[d + i, self.k.at(n)] = vector",
        "            block[d, self.k.at(n)] = vector",
        "test_library and matmul_transposed",
        ("tests/kernels",),
    ),
    Mutation(
        "the server: large bodies arrive",
        "if len(body) + len(part) > self._limit:",
        "if len(body) + len(part) > 1000 * self._limit:",
        "test_errors or test_hostile",
        ("tests/serve",),
    ),
)  # fmt: skip
