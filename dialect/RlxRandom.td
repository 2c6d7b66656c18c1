//===- RlxRandom.td - Random numbers ----------------------------------------------------------===//

#ifndef RLX_RANDOM_TD
#define RLX_RANDOM_TD

include "RlxEnums.td"

def RLX_RandomBitsOp : RLX_Op<"random_bits", "random"> {
  let summary = "Random 32-bit words of a counter-based generator";
  let description = [{
    Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3): element `i` in row-major order
    is word `i mod 4` of the block whose counter
    is `i // 4` and whose key is `seed`. `seed` is a scalar of which the 64 bits (sign-extended) are the key.
    Equal on every device.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape);
  let results = (outs RLX_U32Tensor:$result);
}

def RLX_RngUniformOp : RLX_Op<"rng_uniform", "random"> {
  let summary = "Random numbers, equally likely in a range";
  let description = [{
    `low + (high - low)·u` with `u` in `[0, 1)` made of the upper bits of `random_bits(seed, shape)`: 24 of them
    for f32, f16 and bf16 (computed in f32), and 53 of two words for f64, `random_bits(seed, [2, shape…])`. Rounding
    may give `high` itself, unless it is 1 and `low` is 0, in f32 and f64. `seed` is a scalar integer. Equal on
    every device, to the last bit.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape, DefaultValuedAttr<RLX_Finite, "0.0">:$low,
                       DefaultValuedAttr<RLX_Finite, "1.0">:$high, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_RngNormalOp : RLX_Op<"rng_normal", "random"> {
  let summary = "Random numbers of a normal distribution";
  let description = [{
    `mean + std·z`, where `z = sqrt(-2·log(v))·cos(2π·u)` comes from two words of `random_bits(seed, [2, shape…])`
    by the method of Box and Muller: `v` is the first over 2^32 (1/2 instead of 0), rounded to the dtype, and `u` the
    second over 2^32, without its lower 8 bits but for f64. `seed` is a scalar integer. Computed in f32 for f16 and
    bf16.
  }];
  let arguments = (ins RLX_IndexTensor:$seed, RLX_ShapeAttr:$shape, DefaultValuedAttr<RLX_Finite, "0.0">:$mean,
                       DefaultValuedAttr<RLX_NonNegative, "1.0">:$std, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_SampleOp : RLX_Op<"sample", "random"> {
  let summary = "A class drawn for each row of logits";
  let description = [{
    `logits […, V]` gives i32 ids `[…]`. The distribution is `softmax(logits/temperature)`, cut to the `top_k`
    most likely classes (0: all), then to the fewest most
    likely ones whose probabilities reach `top_p`, at least one; ties go to the lower id. The id is the first
    class at which the cumulated probability exceeds `u` times their sum, with `u` of `rng_uniform(seed)`: in order of
    likelihood where `top_k` or `top_p` cut, else in order of ids, which needs no sorting. `temperature` 0 takes the
    most likely, and so does a row with NaN or an infinite maximum; there NaN counts as the largest. `seed` is a
    scalar integer. Probabilities are f32 (f64 for f64 logits), and sums of them rounded: devices may differ where
    `u` lies within some 1e-7 of a limit between two classes.
  }];
  let arguments = (ins RLX_FloatTensor:$logits, RLX_IndexTensor:$seed, DefaultValuedAttr<RLX_NonNegative, "1.0">:$temperature,
                       DefaultValuedAttr<RLX_Natural, "0">:$top_k, DefaultValuedAttr<RLX_Fraction, "1.0">:$top_p);
  let results = (outs RLX_I32Tensor:$ids);
}

#endif // RLX_RANDOM_TD
