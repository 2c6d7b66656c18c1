// RUN: not rlx-opt %s --pass-pipeline="builtin.module(rlx-simplify,rlx-decompos)" 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not rlx-opt %s --pass-pipeline="builtin.module(rlx-decompose{excpt=softmax})" 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not rlx-opt %s --pass-pipeline="builtin.module(func.func(canonicalize{max-iteration=3}))" 2>&1 | filecheck %s --check-prefix=NATIVE
// RUN: not rlx-opt %s --pass-pipeline="builtin.module(func.func(rlx-simplify))" 2>&1 | filecheck %s --check-prefix=ANCHOR
// RUN: not rlx-opt %s --pass-pipeline="builtin.module(tosa-infer-shapes)" 2>&1 | filecheck %s --check-prefix=NEST
// RUN: not rlx-opt %s --pass-pipeline="builtin.module(cse" 2>&1 | filecheck %s --check-prefix=OPEN
// RUN: not rlx-opt %s --rlx-constant-fold=max-elements=many 2>&1 | filecheck %s --check-prefix=VALUE
// RUN: not rlx-opt %s --rlx-decompse 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not rlx-opt %s --cse --pass-pipeline="builtin.module(cse)" 2>&1 | filecheck %s --check-prefix=BOTH
// RUN: not rlx-opt %s --mlir-print-ir-after=csee 2>&1 | filecheck %s --check-prefix=NAME

// PASS:      pipeline:1:29: error: 'rlx-decompos' is not a pass (did you mean 'rlx-decompose'?)
// PASS-NEXT:   builtin.module(rlx-simplify,rlx-decompos)
// PASS-NEXT:                               ^
// OPTION: pipeline:1:30: error: rlx-decompose has no option 'excpt' (did you mean 'except'?)
// NATIVE: pipeline:1:39: error: canonicalize has no option 'max-iteration' (did you mean 'max-iterations'?)
// ANCHOR: pipeline:1:26: error: 'rlx-simplify' runs on builtin.module, not on 'func.func': move it out of func.func(…)
// NEST: pipeline:1:16: error: 'tosa-infer-shapes' runs on 'func.func', not on 'builtin.module': nest it: func.func(tosa-infer-shapes)
// OPEN: pipeline:1:19: error: expected ',' or ')' in the list of 'builtin.module', got the end
// VALUE: pipeline:1:19: error: option 'max-elements' takes an integer, not 'many'
// FLAG: rlx-opt: unknown command line argument '--rlx-decompse'
// FLAG: rlx-opt: Did you mean '--rlx-decompose'?
// BOTH: rlx-opt: --pass-pipeline cannot be used with the flags of single passes
// NAME: rlx-opt: error: 'csee' is not a pass (did you mean 'cse'?)

func.func @main() {
  return
}
