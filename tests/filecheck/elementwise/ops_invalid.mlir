// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// An unknown kind.
func.func @activation(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.activation' op attribute 'kind': 'gelo' is not one of}}
  rlx.activation(%0) {kind = "gelo"} : tensor<3xf32>
  return
}

// -----

// A missing attribute.
func.func @activation(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.activation' op attribute 'kind' is missing}}
  rlx.activation(%0) : tensor<3xf32>
  return
}

// -----

// A float function of integers.
func.func @activation(%0: tensor<3xi32>) {
  // expected-error @+1 {{'rlx.activation' op exp takes floats, not i32 (cast to a float dtype first)}}
  rlx.activation(%0) {kind = "exp"} : tensor<3xi32>
  return
}

// -----

// An attribute that there is not.
func.func @activation(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.activation' op unknown attribute 'alpha'}}
  rlx.activation(%0) {kind = "relu", alpha = 1.0} : tensor<3xf32>
  return
}

// -----

// A dtype that there is not.
func.func @cast(%0: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.cast' op MLIR type f6E2M3FN is not an element type of RLX (use one of}}
  rlx.cast(%0) {dtype = f6E2M3FN} : (tensor<3xf32>) -> tensor<3xf6E2M3FN>
  return
}

// -----

// Operands of two dtypes.
func.func @binary(%0: tensor<3xf32>, %1: tensor<3xi32>) {
  // expected-error @+1 {{'rlx.binary' op operands have different dtypes: f32, i32}}
  rlx.binary(%0, %1) {kind = "add"} : (tensor<3xf32>, tensor<3xi32>) -> tensor<3xf32>
  return
}

// -----

// Shapes that do not broadcast.
func.func @binary(%0: tensor<3xf32>, %1: tensor<4xf32>) {
  // expected-error @+1 {{'rlx.binary' op shapes [3] and [4] do not broadcast: 3 against 4 at axis -1}}
  rlx.binary(%0, %1) {kind = "add"} : (tensor<3xf32>, tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

// Division of integers.
func.func @binary(%0: tensor<3xi32>, %1: tensor<3xi32>) {
  // expected-error @+1 {{'rlx.binary' op div takes floats, not i32 (cast to a float dtype first)}}
  rlx.binary(%0, %1) {kind = "div"} : tensor<3xi32>
  return
}

// -----

// An order of complex numbers.
func.func @compare(%0: tensor<3xcomplex<f32>>, %1: tensor<3xcomplex<f32>>) {
  // expected-error @+1 {{'rlx.compare' op lt is not defined for c64: complex numbers have no order}}
  rlx.compare(%0, %1) {kind = "lt"} : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xi1>
  return
}

// -----

// A comparison that is not bool.
func.func @compare(%0: tensor<3xf32>, %1: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.compare' op result 0 is declared f32[3], but inference gives bool[3]}}
  rlx.compare(%0, %1) {kind = "eq"} : tensor<3xf32>
  return
}

// -----

// A condition that is not bool.
func.func @where(%0: tensor<3xf32>, %1: tensor<3xf32>, %2: tensor<3xf32>) {
  // expected-error @+1 {{'rlx.where' op operand 'condition' is f32; expected one of}}
  rlx.where(%0, %1, %2) : tensor<3xf32>
  return
}

// -----

// A bound that is larger.
func.func @clamp(%0: tensor<5xf32>, %1: tensor<4x5xf32>, %2: tensor<f32>) {
  // expected-error @+1 {{'rlx.clamp' op low, f32[4, 5], does not broadcast to the shape of x, f32[5]}}
  rlx.clamp(%0, %1, %2) : (tensor<5xf32>, tensor<4x5xf32>, tensor<f32>) -> tensor<5xf32>
  return
}
