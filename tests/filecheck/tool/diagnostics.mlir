// RUN: rlx-opt %s --split-input-file --verify-diagnostics
// RUN: rlx-opt %s --split-input-file --verify-diagnostics --rlx-simplify --cse
// RUN: not rlx-opt %s --split-input-file 2>&1 | filecheck %s

// CHECK: diagnostics.mlir:8:8: error: 'rlx.activation' op attribute 'kind': 'gelo' is not one of
func.func @above(%x: tensor<4xf32>) {
  // expected-error @+1 {{'gelo' is not one of}}
  %0 = rlx.activation(%x) {kind = "gelo"} : tensor<4xf32>
  return
}

// -----

// CHECK: diagnostics.mlir:18:10: error: use of undeclared SSA value name
// CHECK-NEXT: return %nothing
// CHECK-NEXT: {{^         \^}}
func.func @undeclared() -> tensor<4xf32> {
  return %nothing : tensor<4xf32> // expected-error {{undeclared SSA value}}
}

// -----

func.func @with_note(%x: tensor<4xf32>) -> tensor<4xi32> {
  // expected-note @below {{prior use here}}
  %0 = rlx.activation(%x) {kind = "gelu"} : tensor<4xf32>
  // expected-error-re @below {{expects different type than prior uses: {{.*}}xi32}}
  return %0 : tensor<4xi32>
}

// -----

module {
  // expected-note @below {{see existing symbol definition here}}
  func.func @twice() {
    return
  }
  // expected-error @+1 {{redefinition of symbol named 'twice'}}
  func.func @twice() {
    return
  }
}

// -----

func.func @above(%x: tensor<4xf32>) {
  %0 = rlx.activation(%x) {kind = "geli"} : tensor<4xf32>
  // expected-error @above {{'geli' is not one of}}
  return
}
