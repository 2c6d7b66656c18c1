// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A dynamic dimension without a name.
func.func @unnamed(%x: tensor<?xf32>) {
  // expected-error @+1 {{tensor<?xf32> has 1 dynamic dimensions and names 0 of them (name each dynamic dimension, in order: #rlx.dims<["n0"]>)}}
  rlx.activation(%x) {kind = "relu"} : tensor<?xf32>
  return
}

// -----

// More names than dynamic dimensions.
func.func @superfluous(%x: tensor<?x2xf32, #rlx.dims<["n", "m"]>>) {
  // expected-error @below {{has 1 dynamic dimensions and names 2 of them}}
  rlx.activation(%x) {kind = "relu"} : tensor<?x2xf32, #rlx.dims<["n", "m"]>>
  return
}

// -----

// A name that is no expression in symbols.
func.func @not_a_dimension(%x: tensor<?xf32, #rlx.dims<["n+"]>>) {
  // expected-error @below {{'n+' is not a dimension}}
  rlx.activation(%x) {kind = "relu"} : tensor<?xf32, #rlx.dims<["n+"]>>
  return
}

// -----

// A list that does not hold strings.
func.func @numbers(%x: tensor<?xf32, #rlx.dims<[3]>>) {
  // expected-error @below {{#rlx.dims takes a list of strings}}
  rlx.activation(%x) {kind = "relu"} : tensor<?xf32, #rlx.dims<[3]>>
  return
}

// -----

// Two symbols are not the same size.
func.func @mismatch(%x: tensor<?xf32, #rlx.dims<["n"]>>, %y: tensor<?xf32, #rlx.dims<["m"]>>) {
  // expected-error-re @below {{shapes [n] and [m] do not broadcast: {{.*}} at axis -1}}
  rlx.binary(%x, %y) {kind = "add"} : (tensor<?xf32, #rlx.dims<["n"]>>, tensor<?xf32, #rlx.dims<["m"]>>) -> tensor<?xf32, #rlx.dims<["n"]>>
  return
}

// -----

// An element type that is not a dtype.
func.func @element(%x: tensor<2xi3>) {
  // expected-error @below {{MLIR type i3 is not an element type of RLX}}
  rlx.activation(%x) {kind = "neg"} : tensor<2xi3>
  return
}

// -----

// A block in a module that says it is lowered.
module attributes {rlx.stage = "mir"} {
  func.func @block(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>) {
    // expected-error @below {{'rlx.linear' op is a block, which is allowed at stage hir only, but its module is at stage mir}}
    rlx.linear(%x, %w) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    return
  }
}

// -----

// An op that the dialect does not have.
func.func @unknown() {
  // expected-error @below {{unregistered operation 'rlx.no_such_op' found in dialect ('rlx')}}
  "rlx.no_such_op"() : () -> ()
  return
}
