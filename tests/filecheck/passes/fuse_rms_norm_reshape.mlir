// RUN: rlx-opt %s --rlx-fuse-rms-norm-reshape --check-numerics | filecheck %s

// CHECK-LABEL: func.func @flattened(
// CHECK-NEXT: %[[x:.*]] = rlx.reshape(%arg0) {shape = ["2*n", 4]}
// CHECK-NEXT: %[[y:.*]] = rlx.rms_norm(%[[x]], %arg1, %arg1) {axis = 1, eps = 1.000000e-03}
// CHECK-NEXT: return %[[y]]
func.func @flattened(%x: tensor<2x?x4xf32, #rlx.dims<["n"]>>, %s: tensor<4xf32>) -> tensor<?x4xf32, #rlx.dims<["2*n"]>> {
  %0 = rlx.rms_norm(%x, %s, %s) {axis = 2, eps = 1.0e-3} : (tensor<2x?x4xf32, #rlx.dims<["n"]>>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x?x4xf32, #rlx.dims<["n"]>>
  %1 = rlx.reshape(%0) {shape = ["2*n", 4]} : (tensor<2x?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["2*n"]>>
  return %1 : tensor<?x4xf32, #rlx.dims<["2*n"]>>
}

// The last axis changes; the norm is along another axis; it is read elsewhere.
// CHECK-LABEL: func.func @not_fused(
// CHECK: rlx.rms_norm(
// CHECK-NEXT: rlx.reshape(
// CHECK-NEXT: rlx.rms_norm(
// CHECK-NEXT: rlx.reshape(
// CHECK-NEXT: rlx.rms_norm(
// CHECK-NEXT: rlx.reshape(
func.func @not_fused(%x: tensor<4x3x4xf32>, %s: tensor<4xf32>) -> (tensor<4x12xf32>, tensor<12x4xf32>, tensor<12x4xf32>, tensor<4x3x4xf32>) {
  %0 = rlx.rms_norm(%x, %s) {axis = 2} : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3x4xf32>
  %1 = rlx.reshape(%0) {shape = [4, 12]} : (tensor<4x3x4xf32>) -> tensor<4x12xf32>
  %2 = rlx.rms_norm(%x, %s) {axis = 0} : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3x4xf32>
  %3 = rlx.reshape(%2) {shape = [12, 4]} : (tensor<4x3x4xf32>) -> tensor<12x4xf32>
  %4 = rlx.rms_norm(%x, %s) {axis = 2} : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3x4xf32>
  %5 = rlx.reshape(%4) {shape = [12, 4]} : (tensor<4x3x4xf32>) -> tensor<12x4xf32>
  return %1, %3, %5, %4 : tensor<4x12xf32>, tensor<12x4xf32>, tensor<12x4xf32>, tensor<4x3x4xf32>
}
