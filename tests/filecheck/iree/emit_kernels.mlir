// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 --rlx-to-linalg | filecheck %s --check-prefix=CALL
// RUN: rlx-opt %s --rlx-iree-kernels=cpu=x86-64-v3 --rlx-to-linalg --rlx-iree-emit-kernels=cpu=x86-64-v3 | filecheck %s

// Ops whose sizes have different names share a kernel. It takes the unknown sizes as indices.
// CALL: func.func private @kernel_row_softmax_0(tensor<?x8xf32>, index) -> tensor<?x8xf32>
// CALL-SAME: rlx.kernel_case = {attributes = {axis = 1 : i64}, groups = array<i32: 1>, kernel = "row_softmax", op = "softmax"
// CALL-NOT: func.func private
// CALL: call @kernel_row_softmax_0(%arg0, %dim)
// CALL: call @kernel_row_softmax_0(%arg1, %dim_0)

// CHECK: "stream.executable"() ({
// CHECK: "stream.executable.export"() ({
// CHECK: [[ROWS:%.*]] = arith.maxsi %arg0
// CHECK: [[GROUPS:%.*]] = arith.ceildivui [[ROWS]]
// CHECK: "stream.return"([[GROUPS]]

// The code reads memory at pointers, and does not depend on IREE.
// CHECK: func.func private @kernel_row_softmax_0_code(%arg0: memref<i8>, %arg1: index, %arg2: memref<i8>, %arg3: index, %arg4: index, %arg5: index)
// CHECK-SAME: llvm.bareptr = true
// CHECK-SAME: pipeline = #iree_codegen.no_pipeline
// CHECK: [[IN:%.*]] = memref.reinterpret_cast %arg0
// CHECK: [[OUT:%.*]] = memref.reinterpret_cast %arg2
// CHECK: [[X:%.*]] = memref.view [[IN]][%arg1][%arg4]
// CHECK: [[Y:%.*]] = memref.view [[OUT]][%arg3][%arg4]
// CHECK-NOT: stream.
// CHECK: scf.for
// CHECK: vector.load [[X]]
// CHECK: vector.store %{{.*}}, [[Y]]
// CHECK: func.func @kernel_row_softmax_0(%arg0: !stream.binding, %arg1: !stream.binding, %arg2: index)
// CHECK: "stream.binding.subspan"(%arg0
// CHECK: [[PARTS:%.*]]:4 = "iree_codegen.extract_strided_metadata"
// CHECK: [[GROUP:%.*]] = "stream.dispatch.workgroup.id"
// CHECK: call @kernel_row_softmax_0_code([[PARTS]]#0, [[PARTS]]#1, {{.*}}, %arg2, [[GROUP]])
// CHECK-LABEL: func.func @two
// CHECK: "flow.dispatch"(%dim, %arg0, %dim, %dim, %dim)
// CHECK-SAME: entry_points = [@kernel_row_softmax_0::@kernel_row_softmax_0], operandSegmentSizes = array<i32: 1, 2, 1, 1>
// CHECK: "flow.dispatch"(%dim_0, %arg1, %dim_0, %dim_0, %dim_0)
func.func @two(%x: tensor<?x8xf32, #rlx.dims<["n"]>>, %y: tensor<?x8xf32, #rlx.dims<["m"]>>)
    -> (tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["m"]>>) {
  %0 = rlx.softmax(%x) {axis = 1} : tensor<?x8xf32, #rlx.dims<["n"]>>
  %1 = rlx.softmax(%y) {axis = 1} : tensor<?x8xf32, #rlx.dims<["m"]>>
  return %0, %1 : tensor<?x8xf32, #rlx.dims<["n"]>>, tensor<?x8xf32, #rlx.dims<["m"]>>
}
