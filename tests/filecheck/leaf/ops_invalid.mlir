// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A value that is not an array.
func.func @constant() {
  // expected-error @+1 {{'rlx.constant' op attribute 'value' is of the wrong kind: 3 : i64}}
  rlx.constant() {value = 3} : tensor<i64>
  return
}

// -----

// An axis that there is not.
func.func @iota() {
  // expected-error @+1 {{'rlx.iota' op axis 1 is out of range for rank 1}}
  rlx.iota() {shape = [3], axis = 1, dtype = i32} : tensor<3xi32>
  return
}

// -----

// Two sizes.
func.func @dim_size() {
  // expected-error @+1 {{'rlx.dim_size' op size is a list of one dimension, got 2}}
  rlx.dim_size() {size = ["n", "m"]} : tensor<i32>
  return
}
