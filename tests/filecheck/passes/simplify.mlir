// RUN: rlx-opt %s --rlx-simplify --check-numerics | filecheck %s

// CHECK-LABEL: func.func @neutral(
// CHECK-NEXT: return %arg0
func.func @neutral(%x: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %zero = rlx.constant() {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %minus = rlx.constant() {value = dense<-0.0> : tensor<f32>} : tensor<f32>
  %one = rlx.constant() {value = dense<1.0> : tensor<4xf32>} : tensor<4xf32>
  %0 = rlx.binary(%x, %minus) {kind = "add"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<f32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %1 = rlx.binary(%minus, %0) {kind = "add"} : (tensor<f32>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %2 = rlx.binary(%1, %zero) {kind = "sub"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<f32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %3 = rlx.binary(%one, %2) {kind = "mul"} : (tensor<4xf32>, tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %4 = rlx.binary(%3, %one) {kind = "div"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4xf32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  %5 = rlx.binary(%4, %one) {kind = "pow"} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<4xf32>) -> tensor<?x4xf32, #rlx.dims<["n"]>>
  return %5 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// These have no neutral element on that side (-0 + 0 is 0), or the constant makes the result wider.
// CHECK-LABEL: func.func @not_neutral(
// CHECK-COUNT-5: rlx.binary(
// CHECK: return
func.func @not_neutral(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = rlx.constant() {value = dense<0.0> : tensor<f32>} : tensor<f32>
  %one = rlx.constant() {value = dense<1.0> : tensor<f32>} : tensor<f32>
  %ones = rlx.constant() {value = dense<1.0> : tensor<2x4xf32>} : tensor<2x4xf32>
  %0 = rlx.binary(%zero, %x) {kind = "sub"} : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = rlx.binary(%one, %x) {kind = "div"} : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = rlx.binary(%x, %ones) {kind = "mul"} : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = rlx.binary(%x, %zero) {kind = "mul"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = rlx.binary(%x, %zero) {kind = "add"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1, %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @times_zero(
// CHECK: %[[z:.*]] = rlx.constant() {value = dense<0> : tensor<i32>}
// CHECK-NEXT: %[[e:.*]] = rlx.expand(%[[z]]) {shape = [4]}
// CHECK-NEXT: return %[[e]]
func.func @times_zero(%x: tensor<4xi32>) -> tensor<4xi32> {
  %zero = rlx.constant() {value = dense<0> : tensor<i32>} : tensor<i32>
  %0 = rlx.binary(%x, %zero) {kind = "mul"} : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @signs(
// CHECK-NEXT: %[[d:.*]] = rlx.binary(%arg0, %arg1) {kind = "sub"}
// CHECK-NEXT: %[[n:.*]] = rlx.activation(%arg0) {kind = "neg"}
// CHECK-NEXT: return %arg0, %[[d]], %[[n]]
func.func @signs(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %minus = rlx.constant() {value = dense<-1.0> : tensor<f32>} : tensor<f32>
  %0 = rlx.activation(%x) {kind = "neg"} : tensor<4xf32>
  %1 = rlx.activation(%0) {kind = "neg"} : tensor<4xf32>
  %2 = rlx.activation(%y) {kind = "neg"} : tensor<4xf32>
  %3 = rlx.binary(%x, %2) {kind = "add"} : tensor<4xf32>
  %4 = rlx.binary(%x, %minus) {kind = "mul"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %1, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @magnitudes(
// CHECK-NEXT: %[[a:.*]] = rlx.activation(%arg0) {kind = "abs"}
// CHECK-NEXT: %[[n:.*]] = rlx.activation(%arg1) {kind = "neg"}
// CHECK-NEXT: %[[b:.*]] = rlx.activation(%[[n]]) {kind = "abs"}
// CHECK-NEXT: return %[[a]], %[[b]]
func.func @magnitudes(%x: tensor<4xi8>, %y: tensor<4xui8>) -> (tensor<4xi8>, tensor<4xui8>) {
  %0 = rlx.activation(%x) {kind = "neg"} : tensor<4xi8>
  %1 = rlx.activation(%0) {kind = "abs"} : tensor<4xi8>
  %2 = rlx.activation(%y) {kind = "neg"} : tensor<4xui8>
  %3 = rlx.activation(%2) {kind = "abs"} : tensor<4xui8>
  return %1, %3 : tensor<4xi8>, tensor<4xui8>
}

// i32 -> f32 loses digits, and f32 -> f64 does not. From f64 to an integer saturates, from i32 it wraps.
// CHECK-LABEL: func.func @casts(
// CHECK-NEXT: %[[a:.*]] = rlx.cast(%arg1) {dtype = f32}
// CHECK-NEXT: %[[b:.*]] = rlx.cast(%[[a]]) {dtype = i32}
// CHECK-NEXT: %[[c:.*]] = rlx.cast(%arg0) {dtype = bf16}
// CHECK-NEXT: %[[d:.*]] = rlx.cast(%arg1) {dtype = f64}
// CHECK-NEXT: %[[e:.*]] = rlx.cast(%[[d]]) {dtype = i8}
// CHECK-NEXT: return %arg0, %[[b]], %[[c]], %[[e]]
func.func @casts(%x: tensor<4xf32>, %i: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>, tensor<4xbf16>, tensor<4xi8>) {
  %0 = rlx.cast(%x) {dtype = f64} : (tensor<4xf32>) -> tensor<4xf64>
  %1 = rlx.cast(%0) {dtype = f32} : (tensor<4xf64>) -> tensor<4xf32>
  %2 = rlx.cast(%i) {dtype = f32} : (tensor<4xi32>) -> tensor<4xf32>
  %3 = rlx.cast(%2) {dtype = i32} : (tensor<4xf32>) -> tensor<4xi32>
  %4 = rlx.cast(%0) {dtype = bf16} : (tensor<4xf64>) -> tensor<4xbf16>
  %5 = rlx.cast(%i) {dtype = f64} : (tensor<4xi32>) -> tensor<4xf64>
  %6 = rlx.cast(%5) {dtype = i8} : (tensor<4xf64>) -> tensor<4xi8>
  return %1, %3, %4, %6 : tensor<4xf32>, tensor<4xi32>, tensor<4xbf16>, tensor<4xi8>
}

// CHECK-LABEL: func.func @shapes(
// CHECK-NEXT: %[[t:.*]] = rlx.transpose(%arg0) {perm = array<i64: 2, 0, 1>}
// CHECK-NEXT: %[[r:.*]] = rlx.reshape(%arg0) {shape = [24]}
// CHECK-NEXT: return %arg0, %[[t]], %[[r]], %arg0
func.func @shapes(%x: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<4x2x3xf32>, tensor<24xf32>, tensor<2x3x4xf32>) {
  %0 = rlx.transpose(%x) {perm = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  %1 = rlx.transpose(%0) {perm = array<i64: 0, 2, 1>} : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  %2 = rlx.transpose(%0) {perm = array<i64: 1, 0, 2>} : (tensor<2x4x3xf32>) -> tensor<4x2x3xf32>
  %3 = rlx.reshape(%x) {shape = [6, 4]} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
  %4 = rlx.reshape(%3) {shape = [24]} : (tensor<6x4xf32>) -> tensor<24xf32>
  %5 = rlx.reshape(%3) {shape = [2, 3, 4]} : (tensor<6x4xf32>) -> tensor<2x3x4xf32>
  %6 = rlx.slice(%5) {starts = [0, 0, 0], limits = [2, 3, 4], strides = array<i64: 1, 1, 1>} : tensor<2x3x4xf32>
  %7 = rlx.expand(%6) {shape = [2, 3, 4]} : tensor<2x3x4xf32>
  return %1, %2, %4, %7 : tensor<2x3x4xf32>, tensor<4x2x3xf32>, tensor<24xf32>, tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @ranges(
// CHECK-NEXT: %[[n:.*]] = rlx.narrow(%arg0) {axis = 0, length = [2], start = [3]}
// CHECK-NEXT: %[[m:.*]] = rlx.narrow(%arg0) {axis = 0, length = [3], start = [2]}
// CHECK-NEXT: return %arg0, %[[n]], %[[m]]
func.func @ranges(%x: tensor<6x2xf32>) -> (tensor<6x2xf32>, tensor<2x2xf32>, tensor<3x2xf32>) {
  %0 = rlx.narrow(%x) {axis = 0, length = [2], start = [0]} : (tensor<6x2xf32>) -> tensor<2x2xf32>
  %1 = rlx.narrow(%x) {axis = 0, length = [3], start = [2]} : (tensor<6x2xf32>) -> tensor<3x2xf32>
  %2 = rlx.narrow(%x) {axis = 0, length = [1], start = [5]} : (tensor<6x2xf32>) -> tensor<1x2xf32>
  %3 = rlx.concat(%0, %1) {axis = 0} : (tensor<2x2xf32>, tensor<3x2xf32>) -> tensor<5x2xf32>
  %4 = rlx.concat(%3, %2) {axis = 0} : (tensor<5x2xf32>, tensor<1x2xf32>) -> tensor<6x2xf32>
  %5 = rlx.narrow(%1) {axis = 0, length = [2], start = [1]} : (tensor<3x2xf32>) -> tensor<2x2xf32>
  %6 = rlx.concat(%0, %1) {axis = 0} : (tensor<2x2xf32>, tensor<3x2xf32>) -> tensor<5x2xf32>
  %7 = rlx.narrow(%6) {axis = 0, length = [3], start = [2]} : (tensor<5x2xf32>) -> tensor<3x2xf32>
  return %4, %5, %7 : tensor<6x2xf32>, tensor<2x2xf32>, tensor<3x2xf32>
}

// CHECK-LABEL: func.func @choices(
// CHECK-NEXT: %[[w:.*]] = rlx.expand(%arg1) {shape = [2, 3]}
// CHECK-NEXT: return %arg0, %[[w]], %arg0
func.func @choices(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %c: tensor<2x3xi1>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %true = rlx.constant() {value = dense<true> : tensor<i1>} : tensor<i1>
  %false = rlx.constant() {value = dense<false> : tensor<2x1xi1>} : tensor<2x1xi1>
  %0 = rlx.where(%true, %x, %y) : (tensor<i1>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = rlx.where(%false, %x, %y) : (tensor<2x1xi1>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %2 = rlx.where(%c, %x, %x) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0, %1, %2 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// Choices by a condition that an outer choice knows; of another condition they stay.
// CHECK-LABEL: func.func @repeated_choices(
// CHECK-NEXT: %[[a:.*]] = rlx.where(%arg2, %arg0, %arg1)
// CHECK-NEXT: %[[again:.*]] = rlx.where(%arg2, %arg0, %arg1)
// CHECK-NEXT: %[[b:.*]] = rlx.where(%arg3, %arg0, %arg1)
// CHECK-NEXT: %[[c:.*]] = rlx.where(%arg2, %[[b]], %arg1)
// CHECK-NEXT: return %[[a]], %[[again]], %[[c]]
func.func @repeated_choices(%x: tensor<3xf32>, %y: tensor<3xf32>, %m: tensor<3xi1>, %n: tensor<3xi1>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = rlx.where(%m, %x, %y) : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = rlx.where(%m, %0, %y) : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = rlx.where(%n, %x, %y) : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = rlx.where(%m, %2, %y) : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %0, %1, %3 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// CHECK-LABEL: func.func @reductions(
// CHECK-NEXT: %[[r:.*]] = rlx.reshape(%arg0) {shape = [3]}
// A mean of -0 is 0.
// CHECK-NEXT: %[[zero:.*]] = rlx.constant() {value = dense<0.0{{.*}}> : tensor<f32>}
// CHECK-NEXT: %[[m:.*]] = rlx.binary(%[[r]], %[[zero]]) {kind = "add"}
// CHECK-NEXT: return %[[m]], %arg0
func.func @reductions(%x: tensor<1x3xf32>) -> (tensor<3xf32>, tensor<1x3xf32>) {
  %0 = rlx.reduce(%x) {axes = array<i64: 0>, keep_dims = false, kind = "mean"} : (tensor<1x3xf32>) -> tensor<3xf32>
  %1 = rlx.reduce(%x) {axes = array<i64: 0>, keep_dims = true, kind = "max"} : tensor<1x3xf32>
  return %0, %1 : tensor<3xf32>, tensor<1x3xf32>
}

// RUN: rlx-opt %s --rlx-simplify --mlir-pass-statistics -o /dev/null 2>&1 | filecheck %s --check-prefix=COUNTS
// COUNTS: Simplify (rlx-simplify): {{[0-9]+}} rewrites, {{[0-9]+}} dead ops
// COUNTS: {{[0-9]+}} x + -0.0 -> x

// Slices in a row are one, and so are maxima of maxima.
// CHECK-LABEL: func.func @rows(
// CHECK-NEXT: %[[s:.*]] = rlx.slice(%arg0) {limits = [8, 2], starts = [3, 1], strides = array<i64: 4, 1>}
// CHECK-NEXT: %[[m:.*]] = rlx.reduce(%arg1) {axes = array<i64: 0, 2>, keep_dims = false, kind = "max"}
// CHECK-NEXT: return %[[s]], %[[m]]
func.func @rows(%x: tensor<9x3xf32>, %y: tensor<2x3x4xf32>) -> (tensor<2x1xf32>, tensor<3xf32>) {
  %0 = rlx.slice(%x) {limits = [9, 3], starts = [1, 0], strides = array<i64: 2, 1>} : (tensor<9x3xf32>) -> tensor<4x3xf32>
  %1 = rlx.slice(%0) {limits = [4, 2], starts = [1, 1], strides = array<i64: 2, 1>} : (tensor<4x3xf32>) -> tensor<2x1xf32>
  %2 = rlx.reduce(%y) {axes = array<i64: 2>, keep_dims = false, kind = "max"} : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %3 = rlx.reduce(%2) {axes = array<i64: 0>, keep_dims = false, kind = "max"} : (tensor<2x3xf32>) -> tensor<3xf32>
  return %1, %3 : tensor<2x1xf32>, tensor<3xf32>
}

// Transposes on both sides of elementwise ops, with a number; where one operand is not transposed they stay.
// CHECK-LABEL: func.func @round_trip(
// CHECK-NEXT: %[[two:.*]] = rlx.constant
// CHECK-NEXT: rlx.transpose(%arg0)
// CHECK-NEXT: %[[tanh:.*]] = rlx.activation(%arg0) {kind = "tanh"}
// CHECK-NEXT: %[[mul:.*]] = rlx.binary(%[[tanh]], %[[two]]) {kind = "mul"}
// CHECK-NEXT: %[[add:.*]] = rlx.binary(%[[mul]], %arg1) {kind = "add"}
// CHECK: rlx.binary({{%.*}}, %arg2)
// CHECK-NEXT: rlx.transpose
func.func @round_trip(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %z: tensor<3x2xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %two = rlx.constant() {value = dense<2.0> : tensor<f32>} : tensor<f32>
  %xt = rlx.transpose(%x) {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %yt = rlx.transpose(%y) {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %0 = rlx.activation(%xt) {kind = "tanh"} : tensor<3x2xf32>
  %1 = rlx.binary(%0, %two) {kind = "mul"} : (tensor<3x2xf32>, tensor<f32>) -> tensor<3x2xf32>
  %2 = rlx.binary(%1, %yt) {kind = "add"} : tensor<3x2xf32>
  %3 = rlx.transpose(%2) {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %4 = rlx.binary(%xt, %z) {kind = "add"} : tensor<3x2xf32>
  %5 = rlx.transpose(%4) {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  return %3, %5 : tensor<2x3xf32>, tensor<2x3xf32>
}

// A contraction names its axes, and products broadcast.
// CHECK-LABEL: func.func @factors(
// CHECK-NEXT: %[[d:.*]] = rlx.dot_general(%arg0, %arg1)
// CHECK-SAME: lhs_batch = array<i64: 1>, lhs_contracting = array<i64: 0>, rhs_batch = array<i64: 0>, rhs_contracting = array<i64: 2>
// CHECK-NEXT: %[[m:.*]] = rlx.matmul(%arg0, %arg2)
// CHECK-NEXT: return %[[d]], %[[m]]
func.func @factors(%x: tensor<4x2x3xf32>, %y: tensor<2x5x4xf32>, %w: tensor<3x5xf32>) -> (tensor<2x3x5xf32>, tensor<4x2x5xf32>) {
  %xt = rlx.transpose(%x) {perm = array<i64: 1, 2, 0>} : (tensor<4x2x3xf32>) -> tensor<2x3x4xf32>
  %yt = rlx.transpose(%y) {perm = array<i64: 0, 2, 1>} : (tensor<2x5x4xf32>) -> tensor<2x4x5xf32>
  %0 = rlx.dot_general(%xt, %yt) {lhs_batch = array<i64: 0>, lhs_contracting = array<i64: 2>, rhs_batch = array<i64: 0>, rhs_contracting = array<i64: 1>} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  %ww = rlx.expand(%w) {shape = [4, 3, 5]} : (tensor<3x5xf32>) -> tensor<4x3x5xf32>
  %1 = rlx.matmul(%x, %ww) : (tensor<4x2x3xf32>, tensor<4x3x5xf32>) -> tensor<4x2x5xf32>
  return %0, %1 : tensor<2x3x5xf32>, tensor<4x2x5xf32>
}

// What is repeated is computed once, and its maximum is its own.
// CHECK-LABEL: func.func @repeated(
// CHECK-NEXT: %[[e:.*]] = rlx.activation(%arg0) {kind = "exp"}
// CHECK-NEXT: %[[w:.*]] = rlx.expand(%[[e]]) {shape = [4, 3]}
// CHECK-NEXT: return %[[w]], %arg0
func.func @repeated(%x: tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>) {
  %0 = rlx.expand(%x) {shape = [4, 3]} : (tensor<3xf32>) -> tensor<4x3xf32>
  %1 = rlx.activation(%0) {kind = "exp"} : tensor<4x3xf32>
  %2 = rlx.expand(%x) {shape = [4, 3]} : (tensor<3xf32>) -> tensor<4x3xf32>
  %3 = rlx.reduce(%2) {axes = array<i64: 0>, keep_dims = false, kind = "max"} : (tensor<4x3xf32>) -> tensor<3xf32>
  return %1, %3 : tensor<4x3xf32>, tensor<3xf32>
}

// CHECK-LABEL: func.func @equals(
// CHECK-NEXT: %[[e:.*]] = rlx.expand(%arg0) {shape = [2, 3, 4]}
// CHECK-NEXT: return %[[e]]
func.func @equals(%x: tensor<2x1x4xf32>) -> tensor<2x3x4xf32> {
  %0 = rlx.concat(%x, %x) {axis = 1} : (tensor<2x1x4xf32>, tensor<2x1x4xf32>) -> tensor<2x2x4xf32>
  %1 = rlx.concat(%0, %x) {axis = 1} : (tensor<2x2x4xf32>, tensor<2x1x4xf32>) -> tensor<2x3x4xf32>
  return %1 : tensor<2x3x4xf32>
}

// Of no elements at all the maximum is -inf: a symbol may be 0.
// CHECK-LABEL: func.func @extremum_along_a_symbol(
// CHECK: rlx.reduce
func.func @extremum_along_a_symbol(%x: tensor<2x1xf32>) -> tensor<2xf32> {
  %0 = rlx.expand(%x) {shape = [2, "n"]} : (tensor<2x1xf32>) -> tensor<2x?xf32, #rlx.dims<["n"]>>
  %1 = rlx.reduce(%0) {axes = array<i64: 1>, keep_dims = false, kind = "max"} : (tensor<2x?xf32, #rlx.dims<["n"]>>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
