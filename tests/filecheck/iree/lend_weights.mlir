// RUN: rlx-opt %s --split-input-file --allow-unregistered-dialect --rlx-iree-lend-weights | filecheck %s
// RUN: rlx-opt %s --split-input-file --allow-unregistered-dialect --rlx-iree-lend-weights=limit=1000000000 | filecheck %s --check-prefix=NONE

// A large weight that only kernels read. Its name has a quote and a line break.
// CHECK: "util.global"() {is_mutable, sym_name = "param.w", sym_visibility = "private", type = !hal.buffer_view} : () -> ()
// CHECK: func.func @main
// CHECK-NEXT: %[[BUFFER:.*]] = "util.global.load"() {global = @param.w} : () -> !hal.buffer_view
// CHECK-NEXT: %[[W:.*]] = "hal.tensor.import"(%[[BUFFER]]) {operandSegmentSizes = array<i32: 1, 0, 0, 0>, target_encoding = tensor<512x512xi8>} : (!hal.buffer_view) -> tensor<512x512xi8>
// CHECK-NEXT: call @kernel(%{{.*}}, %[[W]])
// CHECK: func.func @__rlx.weights(%[[ARGUMENT:.*]]: !hal.buffer_view) attributes {iree.reflection = {rlx.weights = "[\22a \\\22b\\\22\\n\22]"}}
// CHECK-NEXT: "util.global.store"(%[[ARGUMENT]]) {global = @param.w} : (!hal.buffer_view) -> ()
// CHECK-NEXT: return
// NONE-NOT: buffer_view
"util.global"() {sym_name = "param.w", sym_visibility = "private", type = tensor<512x512xi8>, initial_value = #flow.parameter.named<"model"::"a \22b\22\0A"> : tensor<512x512xi8>} : () -> ()
func.func private @kernel(tensor<1x512xf32>, tensor<512x512xi8>) -> tensor<1x512xf32> attributes {rlx.kernel_case = {kernel = "packed_vecmat"}}
func.func @main(%x: tensor<1x512xf32>) -> tensor<1x512xf32> {
  %w = "util.global.load"() {global = @param.w} : () -> tensor<512x512xi8>
  %r = call @kernel(%x, %w) : (tensor<1x512xf32>, tensor<512x512xi8>) -> tensor<1x512xf32>
  return %r : tensor<1x512xf32>
}

// -----

// Another op reads it, in one of two functions.
// CHECK: {{.*}}sym_name = "param.w"{{.*}}type = tensor<512x512xi8>}
// CHECK-LABEL: func.func @one
// CHECK-NOT: buffer_view
"util.global"() {sym_name = "param.w", sym_visibility = "private", type = tensor<512x512xi8>, initial_value = #flow.parameter.named<"model"::"w"> : tensor<512x512xi8>} : () -> ()
func.func private @kernel(tensor<512x512xi8>) -> tensor<1x512xf32> attributes {rlx.kernel_case = {kernel = "transposed_vecmat"}}
func.func @one() -> tensor<1x512xf32> {
  %w = "util.global.load"() {global = @param.w} : () -> tensor<512x512xi8>
  %r = call @kernel(%w) : (tensor<512x512xi8>) -> tensor<1x512xf32>
  return %r : tensor<1x512xf32>
}
func.func @two() -> tensor<i8> {
  %w = "util.global.load"() {global = @param.w} : () -> tensor<512x512xi8>
  %0 = arith.constant 0 : index
  %r = tensor.extract %w[%0, %0] : tensor<512x512xi8>
  %t = tensor.from_elements %r : tensor<i8>
  return %t : tensor<i8>
}

// -----

// States and constants are no parameters; several elements of a byte are copied.
// CHECK-LABEL: sym_name = "state.s"
// CHECK-NOT: buffer_view
"util.global"() {is_mutable, sym_name = "state.s", sym_visibility = "private", type = tensor<512x512xi8>, initial_value = dense<0> : tensor<512x512xi8>} : () -> ()
"util.global"() {sym_name = "param.w", sym_visibility = "private", type = tensor<1024x1024xi4>, initial_value = #flow.parameter.named<"model"::"w"> : tensor<1024x1024xi4>} : () -> ()
func.func private @kernel(tensor<512x512xi8>, tensor<1024x1024xi4>) -> tensor<1x512xf32> attributes {rlx.kernel_case = {kernel = "transposed_vecmat"}}
func.func @main() -> tensor<1x512xf32> {
  %s = "util.global.load"() {global = @state.s} : () -> tensor<512x512xi8>
  %w = "util.global.load"() {global = @param.w} : () -> tensor<1024x1024xi4>
  %r = call @kernel(%s, %w) : (tensor<512x512xi8>, tensor<1024x1024xi4>) -> tensor<1x512xf32>
  return %r : tensor<1x512xf32>
}

// -----

// IREE's tools can run programs with other kernels.
// CHECK-LABEL: func.func private @other
// CHECK-NOT: buffer_view
"util.global"() {sym_name = "param.w", sym_visibility = "private", type = tensor<512x512xi8>, initial_value = #flow.parameter.named<"model"::"w"> : tensor<512x512xi8>} : () -> ()
func.func private @other(tensor<512x512xi8>) -> tensor<1x512xf32> attributes {rlx.kernel_case = {kernel = "embedding_rows"}}
func.func @main() -> tensor<1x512xf32> {
  %w = "util.global.load"() {global = @param.w} : () -> tensor<512x512xi8>
  %r = call @other(%w) : (tensor<512x512xi8>) -> tensor<1x512xf32>
  return %r : tensor<1x512xf32>
}
