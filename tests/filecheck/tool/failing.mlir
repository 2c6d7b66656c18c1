// RUN: not rlx-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s
// RUN: not rlx-opt %s --split-input-file --verify-diagnostics=only-expected 2>&1 | filecheck %s --check-prefix=ONLY

// Comments that do not fit what happens are errors themselves.
// ONLY-NOT: unexpected
// ONLY: error: expected error "'tanh' is not" was not produced
// ONLY-NOT: unexpected

// CHECK: failing.mlir:[[LINE:[0-9]+]]:8: error: unexpected error: 'rlx.activation' op attribute 'kind': 'gelo' is not one of
func.func @unexpected(%x: tensor<4xf32>) {
  %0 = rlx.activation(%x) {kind = "gelo"} : tensor<4xf32>
  return
}

// -----

func.func @another_message(%x: tensor<4xf32>) {
  // CHECK: error: unexpected error: 'rlx.activation' op attribute 'kind': 'geli'
  // CHECK: error: expected error "'tanh' is not" was not produced
  // expected-error @+1 {{'tanh' is not}}
  %0 = rlx.activation(%x) {kind = "geli"} : tensor<4xf32>
  return
}

// -----

// CHECK: failing.mlir:[[LINE:[0-9]+]]:6: error: expected warning "never" was not produced
func.func @nothing() {
  // expected-warning @+1 {{never}}
  return
}
