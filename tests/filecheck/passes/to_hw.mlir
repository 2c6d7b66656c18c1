// REQUIRES: pycde
// RUN: rlx-opt %s --rlx-to-hw | filecheck %s
// RUN: rlx-opt %s --rlx-to-hw="part=xc7 preset=latency" --cse | filecheck %s
// RUN: rlx-opt %s --rlx-to-hw="simulated=true" | filecheck %s --check-prefix=SIMULATED
// RUN: not rlx-opt %s --rlx-to-hw="part=xc8" 2>&1 | filecheck %s --check-prefix=PART
// RUN: not rlx-opt %s --rlx-to-hw="ternary=true" 2>&1 | filecheck %s --check-prefix=TERNARY

// PART: option 'part' is one of ecp5-25k, ecp5-85k, ice40-up5k, xc7, not 'xc8' (did you mean 'xc7'?)
// TERNARY: error: rlx-to-hw: --ternary=yes: no layer has weights of -1, 0 and 1 only
// TERNARY: note: rlx quantize --bits=2 makes weights ternary

// Weights are in a memory that is defined elsewhere; a simulator needs its words.
// CHECK: "hw.module.extern"() <{module_type = !hw.modty<input clk : !seq.clock, {{.*}}sym_name = "layer__dense1__weights"
// CHECK: "hw.module"()
// CHECK-SAME: sym_name = "layer__dense1"
// CHECK: "comb.mul"
// CHECK: "seq.compreg
// CHECK: "hw.module"() <{module_type = !hw.modty<{{.*}}input x_data : i8, input y_ready : i1, {{.*}}output y_data : i32>
// CHECK-SAME: parameters = [], sym_name = "layer"
// CHECK: "hw.instance"
// SIMULATED: sym_name = "layer__dense1__weights", sym_visibility = "private"
// SIMULATED: "hw.aggregate_constant"() <{fields = [
func.func @layer(%x: tensor<1x4xi8> {rlx.name = "x"}) -> (tensor<1x2xi32> {rlx.name = "y"}) {
  %w = rlx.constant() {value = dense<[[1, 2], [3, 4], [5, 6], [7, 8]]> : tensor<4x2xi8>} : tensor<4x2xi8>
  %y = rlx.q_matmul(%x, %w, _, _) {dtype = i32} : (tensor<1x4xi8>, tensor<4x2xi8>) -> tensor<1x2xi32>
  return %y : tensor<1x2xi32>
}
