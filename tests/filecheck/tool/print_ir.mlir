// RUN: rlx-opt %s --rlx-simplify --cse --canonicalize --mlir-print-ir-after-all -o /dev/null 2>&1 | filecheck %s --check-prefix=ALL
// RUN: rlx-opt %s --rlx-simplify --cse --canonicalize --mlir-print-ir-after-change -o /dev/null 2>&1 | filecheck %s --check-prefix=CHANGE
// RUN: rlx-opt %s --rlx-simplify --cse --mlir-print-ir-before=cse --mlir-print-ir-after=rlx-simplify -o /dev/null 2>&1 | filecheck %s --check-prefix=ONE
// RUN: rlx-opt %s --rlx-simplify --cse --mlir-timing -o /dev/null 2>&1 | filecheck %s --check-prefix=TIME

// ALL: // -----// IR Dump After Simplify (rlx-simplify) //----- //
// ALL: func.func @main
// ALL: // -----// IR Dump After Cse (cse) //----- //
// ALL: // -----// IR Dump After Canonicalize (canonicalize) //----- //

// CHANGE: // -----// IR Dump After Simplify (rlx-simplify) //----- //
// CHANGE: func.func @main
// CHANGE-NOT: IR Dump

// ONE-NOT: Before Simplify
// ONE: // -----// IR Dump After Simplify (rlx-simplify) //----- //
// ONE: // -----// IR Dump Before Cse (cse) //----- //
// ONE-NOT: After Cse

// TIME: ... Execution time report ...
// TIME: Total Execution Time: {{[0-9.]+}} seconds
// TIME: Parser
// TIME-NEXT: Simplify (rlx-simplify)
// TIME-NEXT: (V) Verifier
// TIME-NEXT: Cse (cse)
// TIME-NEXT: Output
// TIME-NEXT: Rest
// TIME-NEXT: (100.0%)  Total

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "neg"} : tensor<4xf32>
  %1 = rlx.activation(%0) {kind = "neg"} : tensor<4xf32>
  return %1 : tensor<4xf32>
}
