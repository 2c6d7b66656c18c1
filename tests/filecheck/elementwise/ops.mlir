// RUN: rlx-opt %s | rlx-opt | filecheck %s

// CHECK-LABEL: func.func @activation(
// CHECK: rlx.activation(%arg0) {kind = "gelu"} : tensor<3x5xf32>
func.func @activation(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.activation(%arg0) {kind = "gelu"} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @activation_1(
// CHECK: rlx.activation(%arg0) {kind = "gelu"} : tensor<?x4xf32, #rlx.dims<["n"]>>
func.func @activation_1(%arg0: tensor<?x4xf32, #rlx.dims<["n"]>>) -> tensor<?x4xf32, #rlx.dims<["n"]>> {
  %0 = rlx.activation(%arg0) {kind = "gelu"} : tensor<?x4xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x4xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @activation_2(
// CHECK: rlx.activation(%arg0) {kind = "gelu_approx"} : tensor<3x5xf16>
func.func @activation_2(%arg0: tensor<3x5xf16>) -> tensor<3x5xf16> {
  %0 = rlx.activation(%arg0) {kind = "gelu_approx"} : tensor<3x5xf16>
  return %0 : tensor<3x5xf16>
}

// CHECK-LABEL: func.func @cast(
// CHECK: rlx.cast(%arg0) {dtype = f32} : tensor<3x5xf32>
func.func @cast(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.cast(%arg0) {dtype = f32} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @cast_1(
// CHECK: rlx.cast(%arg0) {dtype = f16} : tensor<3x5xf16>
func.func @cast_1(%arg0: tensor<3x5xf16>) -> tensor<3x5xf16> {
  %0 = rlx.cast(%arg0) {dtype = f16} : tensor<3x5xf16>
  return %0 : tensor<3x5xf16>
}

// CHECK-LABEL: func.func @cast_2(
// CHECK: rlx.cast(%arg0) {dtype = f16} : (tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xf16, #rlx.dims<["n"]>>
func.func @cast_2(%arg0: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xf16, #rlx.dims<["n"]>> {
  %0 = rlx.cast(%arg0) {dtype = f16} : (tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xf16, #rlx.dims<["n"]>>
  return %0 : tensor<?xf16, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @binary(
// CHECK: rlx.binary(%arg0, %arg1) {kind = "add"} : tensor<3x5xf32>
func.func @binary(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.binary(%arg0, %arg1) {kind = "add"} : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @binary_1(
// CHECK: rlx.binary(%arg0, %arg1) {kind = "sub"} : tensor<3x5xf16>
func.func @binary_1(%arg0: tensor<3x5xf16>, %arg1: tensor<3x5xf16>) -> tensor<3x5xf16> {
  %0 = rlx.binary(%arg0, %arg1) {kind = "sub"} : tensor<3x5xf16>
  return %0 : tensor<3x5xf16>
}

// CHECK-LABEL: func.func @binary_2(
// CHECK: rlx.binary(%arg0, %arg1) {kind = "mul"} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
func.func @binary_2(%arg0: tensor<?x3xf32, #rlx.dims<["n"]>>, %arg1: tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.binary(%arg0, %arg1) {kind = "mul"} : (tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @compare(
// CHECK: rlx.compare(%arg0, %arg1) {kind = "eq"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
func.func @compare(%arg0: tensor<4x6xf32>, %arg1: tensor<4x6xf32>) -> tensor<4x6xi1> {
  %0 = rlx.compare(%arg0, %arg1) {kind = "eq"} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
  return %0 : tensor<4x6xi1>
}

// CHECK-LABEL: func.func @compare_1(
// CHECK: rlx.compare(%arg0, %arg1) {kind = "ne"} : (tensor<4x6xf16>, tensor<4x6xf16>) -> tensor<4x6xi1>
func.func @compare_1(%arg0: tensor<4x6xf16>, %arg1: tensor<4x6xf16>) -> tensor<4x6xi1> {
  %0 = rlx.compare(%arg0, %arg1) {kind = "ne"} : (tensor<4x6xf16>, tensor<4x6xf16>) -> tensor<4x6xi1>
  return %0 : tensor<4x6xi1>
}

// CHECK-LABEL: func.func @compare_2(
// CHECK: rlx.compare(%arg0, %arg1) {kind = "ge"} : (tensor<?x1xf32, #rlx.dims<["n"]>>, tensor<6xf32>) -> tensor<?x6xi1, #rlx.dims<["n"]>>
func.func @compare_2(%arg0: tensor<?x1xf32, #rlx.dims<["n"]>>, %arg1: tensor<6xf32>) -> tensor<?x6xi1, #rlx.dims<["n"]>> {
  %0 = rlx.compare(%arg0, %arg1) {kind = "ge"} : (tensor<?x1xf32, #rlx.dims<["n"]>>, tensor<6xf32>) -> tensor<?x6xi1, #rlx.dims<["n"]>>
  return %0 : tensor<?x6xi1, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @where(
// CHECK: rlx.where(%arg0, %arg1, %arg2) : (tensor<3x5xi1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
func.func @where(%arg0: tensor<3x5xi1>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.where(%arg0, %arg1, %arg2) : (tensor<3x5xi1>, tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @where_1(
// CHECK: rlx.where(%arg0, %arg1, %arg2) : (tensor<?x1xi1, #rlx.dims<["n"]>>, tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
func.func @where_1(%arg0: tensor<?x1xi1, #rlx.dims<["n"]>>, %arg1: tensor<?x3xf32, #rlx.dims<["n"]>>, %arg2: tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>> {
  %0 = rlx.where(%arg0, %arg1, %arg2) : (tensor<?x1xi1, #rlx.dims<["n"]>>, tensor<?x3xf32, #rlx.dims<["n"]>>, tensor<3xf32>) -> tensor<?x3xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x3xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @stop_gradient(
// CHECK: rlx.stop_gradient(%arg0) : tensor<3x5xf32>
func.func @stop_gradient(%arg0: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.stop_gradient(%arg0) : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @stop_gradient_1(
// CHECK: rlx.stop_gradient(%arg0) : tensor<?xf32, #rlx.dims<["n"]>>
func.func @stop_gradient_1(%arg0: tensor<?xf32, #rlx.dims<["n"]>>) -> tensor<?xf32, #rlx.dims<["n"]>> {
  %0 = rlx.stop_gradient(%arg0) : tensor<?xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?xf32, #rlx.dims<["n"]>>
}

// CHECK-LABEL: func.func @clamp(
// CHECK: rlx.clamp(%arg0, %arg1, %arg2) : tensor<3x5xf32>
func.func @clamp(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = rlx.clamp(%arg0, %arg1, %arg2) : tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// CHECK-LABEL: func.func @clamp_1(
// CHECK: rlx.clamp(%arg0, %arg1, %arg2) : (tensor<?x5xf32, #rlx.dims<["n"]>>, tensor<5xf32>, tensor<?x1xf32, #rlx.dims<["n"]>>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
func.func @clamp_1(%arg0: tensor<?x5xf32, #rlx.dims<["n"]>>, %arg1: tensor<5xf32>, %arg2: tensor<?x1xf32, #rlx.dims<["n"]>>) -> tensor<?x5xf32, #rlx.dims<["n"]>> {
  %0 = rlx.clamp(%arg0, %arg1, %arg2) : (tensor<?x5xf32, #rlx.dims<["n"]>>, tensor<5xf32>, tensor<?x1xf32, #rlx.dims<["n"]>>) -> tensor<?x5xf32, #rlx.dims<["n"]>>
  return %0 : tensor<?x5xf32, #rlx.dims<["n"]>>
}
