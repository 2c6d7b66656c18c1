// RUN: rlx-opt %s --rlx-to-c | filecheck %s
// RUN: not rlx-opt %s --rlx-to-c --rlx-to-c='x=1' 2>&1 | filecheck %s --check-prefix=OPTION

// RUN: not rlx-opt %s --rlx-to-c=ram=0 2>&1 | filecheck %s --check-prefix=RAM

// OPTION: rlx-to-c has no option 'x'; it takes ram, flash, made-with
// RAM: error: rlx-to-c: 'layer' needs 4 bytes of RAM (arena 4, states 0), which is 4 more than the 0 there are
// RAM: note: most is in use at step 0, start: `rlx inspect FILE --memory` with the same --target shows all

// CHECK: emitc.file "layer.h" {
// CHECK-NEXT: verbatim "/* layer: 
// CHECK-SAME: void layer_run(layer_state *state, const int8_t x[4], int8_t y[4]);
// CHECK: emitc.file "layer.c" {
// CHECK-NEXT: verbatim "/* layer: 
// CHECK-SAME: STEP void step_1_max(const int8_t *x, int8_t *y)
// CHECK: emitc.file "layer_weights.h" {
// CHECK-NEXT: verbatim "/* layer: 
// CHECK: emitc.file "layer_weights.c" {
// CHECK-NEXT: verbatim "/* layer: 
func.func @layer(%x: tensor<1x4xi8> {rlx.name = "x"}) -> (tensor<1x4xi8> {rlx.name = "y"}) {
  %zero = rlx.constant() {value = dense<3> : tensor<i8>} : tensor<i8>
  %y = rlx.binary(%x, %zero) {kind = "max"} : (tensor<1x4xi8>, tensor<i8>) -> tensor<1x4xi8>
  return %y : tensor<1x4xi8>
}
