//===- RlxRandom.td - Random numbers ----------------------------------------------------------===//

#ifndef RLX_RANDOM_TD
#define RLX_RANDOM_TD

include "RlxEnums.td"

def RLX_RandomBitsOp : RLX_Op<"random_bits", "random"> {
  let summary = "Random 32-bit words of a counter-based generator";
  let description = [{
    Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3): element `i` in row-major order is word
    `i mod 4` of the block with counter `i // 4` and key `seed`. `seed` is a scalar; its 64 bits (sign-extended) are
    the key. The result is equal on every device.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape);
  let results = (outs RLX_U32Tensor:$result);
}

def RLX_RngUniformOp : RLX_Op<"rng_uniform", "random"> {
  let summary = "Uniformly distributed random numbers";
  let description = [{
    `low + (high - low)·u` with `u` in `[0, 1)` from the upper bits of `random_bits(seed, shape)`: 24 bits for f32,
    f16 and bf16 (computed in f32), and 53 bits of two words for f64, `random_bits(seed, [2, shape…])`. Rounding may
    return `high` itself, except in f32 and f64 if `high` is 1 and `low` is 0. `seed` is a scalar integer. The result
    is equal on every device, to the last bit.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape, DefaultValuedAttr<RLX_Finite, "0.0">:$low,
                       DefaultValuedAttr<RLX_Finite, "1.0">:$high, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RngNormalOp : RLX_Op<"rng_normal", "random"> {
  let summary = "Normally distributed random numbers";
  let description = [{
    `mean + std·z`, where `z = sqrt(-2·log(v))·cos(2π·u)` comes from two words of `random_bits(seed, [2, shape…])` by
    the Box-Muller method. `v` is the first word (1/2 instead of 0) divided by 2^32, rounded to the dtype. `u` is the
    second word divided by 2^32, without its lower 8 bits except for f64. `seed` is a scalar integer. Computed in f32
    for f16 and bf16.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape, DefaultValuedAttr<RLX_Finite, "0.0">:$mean,
                       DefaultValuedAttr<RLX_NonNegative, "1.0">:$std, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_SampleOp : RLX_Op<"sample", "random"> {
  let summary = "A class drawn for each row of logits";
  let description = [{
    `logits […, V]` gives i32 ids `[…]`. The distribution is `softmax(logits/temperature)`, restricted to the `top_k`
    most likely classes (0: all), then to the smallest set of most likely classes whose probabilities reach `top_p`,
    at least one. Ties go to the lower id. The id is the first class at which the cumulative probability exceeds `u`
    times the total, with `u` from `rng_uniform(seed)`. Classes are in order of likelihood if `top_k` or `top_p`
    restrict them, else in order of ids, which needs no sorting. `temperature` 0 takes the most likely class, and so
    does a row with NaN or an infinite maximum; there NaN counts as the largest. `seed` is a scalar integer.
    Probabilities are f32 (f64 for f64 logits), and their sums are rounded: devices may differ where `u` is within
    about 1e-7 of the boundary between two classes.
  }];
  let arguments = (ins RLX_FloatTensor:$logits, RLX_IndexTensor:$seed, DefaultValuedAttr<RLX_NonNegative, "1.0">:$temperature,
                       DefaultValuedAttr<RLX_Natural, "0">:$top_k, DefaultValuedAttr<RLX_Fraction, "1.0">:$top_p);
  let results = (outs RLX_I32Tensor:$ids);
}

#endif // RLX_RANDOM_TD
