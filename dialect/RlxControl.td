//===- RlxControl.td - Ops with regions, and user-registered ops ------------------------------===//

#ifndef RLX_CONTROL_TD
#define RLX_CONTROL_TD

include "RlxEnums.td"

def RLX_YieldOp : RLX_Op<"yield", "control", [Terminator]> {
  let summary = "The values that a region yields";
  let description = [{The terminator of every region of an rlx op.}];
  let arguments = (ins Variadic<RLX_Tensor>:$values);
  let results = (outs);
}

def RLX_IfOp : RLX_Op<"if", "control"> {
  let summary = "One of two regions, chosen by a scalar";
  let description = [{
    Runs only `then_region` if `condition` (a scalar) is true, and only `else_region` otherwise. The regions have no
    arguments; they may read values from outside. Both yield values of the same types, which are the results.
  }];
  let arguments = (ins RLX_BoolTensor:$condition);
  let regions = (region SizedRegion<1>:$then_region, SizedRegion<1>:$else_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_WhileOp : RLX_Op<"while", "control"> {
  let summary = "A loop that runs while a condition holds";
  let description = [{
    `cond_region` takes the carries and yields a scalar bool; `body_region` takes the carries and yields the next
    carries, of the same types. The loop ends when the condition is false, or after `max_iterations` runs of the body.
    The results are the last carries. Both regions may read values from outside.
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inits, OptionalAttr<RLX_Natural>:$max_iterations);
  let regions = (region SizedRegion<1>:$cond_region, SizedRegion<1>:$body_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_ScanOp : RLX_Op<"scan", "control"> {
  let summary = "A loop over the leading axis of tensors, with carries";
  let description = [{
    The first `num_carries` inputs are the initial carries; the others (`xs`) have the leading axis `length`.
    `body_region` takes the carries and a slice of every `xs`. It yields the next carries and any number of other
    values. The results are the last carries, then the other values stacked on a leading axis. `reverse` runs from the
    end, for slices and stacks alike. `length` is a list of one dimension. The region may read values from outside.
    `num_checkpoints` is the number of carries that the gradient keeps; it computes the others again (absent: it keeps
    all).
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inputs, RLX_Natural:$num_carries, RLX_ShapeAttr:$length,
                       DefaultValuedAttr<BoolAttr, "false">:$reverse, OptionalAttr<RLX_Count>:$num_checkpoints);
  let regions = (region SizedRegion<1>:$body_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_ElementwiseRegionOp : RLX_Op<"elementwise_region", "function"> {
  let summary = "A chain of elementwise ops as one op";
  let description = [{
    `body_region` takes the inputs. It consists of elementwise ops (activation, cast, binary, compare, where, clamp,
    constant), which may be followed by reductions of their results. Its yielded values are the results. The inputs
    broadcast as in NumPy wherever the ops of the region do. The region does not read values from outside.
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inputs);
  let regions = (region SizedRegion<1>:$body_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_CustomFnOp : RLX_Op<"custom_fn", "function"> {
  let summary = "A function with its own derivative rules";
  let description = [{
    `forward_region` takes the inputs and yields the results. `vjp_region`, unless empty, takes the inputs, the
    results and a cotangent of each result, and yields a cotangent of each input. `jvp_region`, unless empty, takes
    the inputs and a tangent of each, and yields a tangent of each result. Regions may read values from outside, which
    count as constants for the rules. With `no_derivative` the function has no derivative; the text is the reason in
    the error message.
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inputs, OptionalAttr<StrAttr>:$no_derivative);
  let regions = (region SizedRegion<1>:$forward_region, AnyRegion:$vjp_region, AnyRegion:$jvp_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_CustomRootOp : RLX_Op<"custom_root", "root"> {
  let summary = "A root of a function, with derivatives by the implicit function theorem";
  let description = [{
    `primal_region` has no arguments and yields the results. The first of them, one for each argument
    of `function_region`, are `x` with `f(x) = 0`; the others, for example a number of iterations, count as constants.
    `function_region` takes `x` and yields `f(x)`, of the same types. `solve_region` takes `x` and `c`, of the same
    types, and yields `t` with `df/dx(x) t = c`. `adjoint_region`, unless empty, does the same for the adjoint of
    `df/dx(x)`. With `symmetric`, this derivative is its own adjoint, and `adjoint_region` is empty. Regions may read
    values from outside. Derivatives with respect to those are taken through `function_region` only:
    `df/dx(x) dx = -df`.
  }];
  let arguments = (ins DefaultValuedAttr<BoolAttr, "false">:$symmetric);
  let regions = (region SizedRegion<1>:$primal_region, SizedRegion<1>:$function_region, SizedRegion<1>:$solve_region,
                        AnyRegion:$adjoint_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_CheckpointOp : RLX_Op<"checkpoint", "checkpoint"> {
  let summary = "Ops whose values the backward pass recomputes instead of storing them";
  let description = [{
    Runs `body_region`, which has no arguments and reads values from outside. Its yielded values are the results.
    Reverse mode stores only the values that the region reads, and runs the region again (Griewank, "Achieving
    logarithmic growth of temporal and spatial complexity in reverse automatic differentiation").
  }];
  let arguments = (ins);
  let regions = (region SizedRegion<1>:$body_region);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_OptimizationBarrierOp : RLX_Op<"optimization_barrier", "checkpoint", [AttrSizedOperandSegments]> {
  let summary = "The same values, available only after other values";
  let description = [{
    The results are the inputs. Ops on the results are not merged with equal ops on the inputs, and do not run before
    the tensors `after` are available. Recomputed values are thus computed late. The tensors `after` are not empty.
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inputs, Variadic<RLX_Tensor>:$after);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

def RLX_CustomOp : RLX_Op<"custom", "custom"> {
  let summary = "A user-registered op";
  let description = [{
    `name` is the name of the op, `attributes` are its attributes. Its card (`rlx.CustomOp`) defines inference,
    evaluator, decomposition or lowering, and rules.
  }];
  let arguments = (ins Variadic<RLX_Tensor>:$inputs, StrAttr:$name, RLX_DictAttr:$attributes);
  let results = (outs Variadic<RLX_Tensor>:$results);
}

#endif // RLX_CONTROL_TD
