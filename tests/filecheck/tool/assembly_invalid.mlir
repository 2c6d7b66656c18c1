// RUN: rlx-opt %s --split-input-file --verify-diagnostics
// RUN: not rlx-opt %s --split-input-file -o %t 2>&1 | filecheck %s

// CHECK: assembly_invalid.mlir:8:8: error: there is no op 'rlx.activatio' (did you mean 'activation'?)
// CHECK-NEXT: %0 = rlx.activatio %x
// CHECK-NEXT: {{^       \^}}
func.func @unknown(%x: tensor<4xf32>) {
  %0 = rlx.activatio %x {kind = "tanh"} : tensor<4xf32> // expected-error {{there is no op 'rlx.activatio' (did you mean 'activation'?)}}
  return
}

// -----

func.func @untyped(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected ':' and the types of 'rlx.activation'}}
  %0 = rlx.activation %x {kind = "tanh"}
  return
}

// -----

func.func @second_in_its_line(%x: tensor<4xf32>) {
  // CHECK: assembly_invalid.mlir:25:71: error: 'rlx.activation' op attribute 'kind': 'tanhh' is not one of
  // expected-error @+1 {{'tanhh' is not one of}}
  %0 = rlx.activation(%x) {kind = "tanh"} : tensor<4xf32>        %1 = rlx.activation(%x) {kind = "tanhh"} : tensor<4xf32>
  return
}

// -----

func.func @no_op() {
  rlx.yield = 3 // expected-error {{'rlx.yield' is not expected here}}
}

// -----

// expected-error @+1 {{expected a module or functions; there is no op}}
!nothing = tensor<4xf32>
