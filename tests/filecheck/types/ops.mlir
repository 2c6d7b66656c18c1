// RUN: rlx-opt %s | rlx-opt | filecheck %s
// RUN: rlx-opt %s --emit-bytecode -o %t && rlx-opt %t | filecheck %s

// Every dtype, and dimensions that are symbols or expressions in symbols.

// CHECK-LABEL: func.func @dtypes(
// CHECK-SAME: tensor<2xf32>, %arg1: tensor<2xf16>, %arg2: tensor<2xbf16>, %arg3: tensor<2xf64>
func.func @dtypes(%0: tensor<2xf32>, %1: tensor<2xf16>, %2: tensor<2xbf16>, %3: tensor<2xf64>, %4: tensor<2xi8>,
                  %5: tensor<2xi16>, %6: tensor<2xi32>, %7: tensor<2xi64>, %8: tensor<2xui8>, %9: tensor<2xui32>,
                  %10: tensor<2xi1>, %11: tensor<2xcomplex<f32>>) {
  // CHECK: rlx.cast(%arg11) {dtype = bf16} : (tensor<2xcomplex<f32>>) -> tensor<2xbf16>
  %a = rlx.cast(%11) {dtype = bf16} : (tensor<2xcomplex<f32>>) -> tensor<2xbf16>
  // CHECK: rlx.cast(%arg8) {dtype = ui32} : (tensor<2xui8>) -> tensor<2xui32>
  %b = rlx.cast(%8) {dtype = ui32} : (tensor<2xui8>) -> tensor<2xui32>
  return
}

// CHECK-LABEL: func.func @symbols(
func.func @symbols(%x: tensor<?x?xf32, #rlx.dims<["batch", "2*seq"]>>, %y: tensor<?x4xf32, #rlx.dims<["past+seq"]>>) {
  // CHECK: rlx.concat(%arg1, %arg1) {axis = 0} : {{.*}}tensor<?x4xf32, #rlx.dims<["2*past+2*seq"]>>
  %a = rlx.concat(%y, %y) {axis = 0} : (tensor<?x4xf32, #rlx.dims<["past+seq"]>>, tensor<?x4xf32, #rlx.dims<["past+seq"]>>) -> tensor<?x4xf32, #rlx.dims<["2*past+2*seq"]>>
  // CHECK: -> tensor<?xf32, #rlx.dims<["2*batch*seq"]>>
  %b = rlx.reshape(%x) {shape = ["2*batch*seq"]} : (tensor<?x?xf32, #rlx.dims<["batch", "2*seq"]>>) -> tensor<?xf32, #rlx.dims<["2*batch*seq"]>>
  return
}

// CHECK-LABEL: func.func @arguments(
// CHECK-SAME: {rlx.donate, rlx.kind = "input", rlx.name = "x"}
// CHECK-SAME: {rlx.init = 1.000000e+00 : f64, rlx.kind = "state", rlx.name = "s"}
// CHECK-SAME: -> (tensor<2xf32> {rlx.name = "y"}, tensor<2xf32> {rlx.name = "next", rlx.updates = "s"})
func.func @arguments(%x: tensor<2xf32> {rlx.name = "x", rlx.kind = "input", rlx.donate},
                     %s: tensor<2xf32> {rlx.name = "s", rlx.kind = "state", rlx.init = 1.0 : f64})
    -> (tensor<2xf32> {rlx.name = "y"}, tensor<2xf32> {rlx.name = "next", rlx.updates = "s"}) {
  return %x, %s : tensor<2xf32>, tensor<2xf32>
}
