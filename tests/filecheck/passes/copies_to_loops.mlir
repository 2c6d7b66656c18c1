// RUN: rlx-opt %s --rlx-copies-to-loops | filecheck %s

// CHECK: linalg.copy {{.*}}ins(%arg0 : memref<4xf32>) outs(%arg1 : memref<4xf32, strided<[2]>>)
// CHECK-NOT: memref.copy
func.func @main(%a: memref<4xf32>, %b: memref<4xf32, strided<[2]>>) {
  memref.copy %a, %b : memref<4xf32> to memref<4xf32, strided<[2]>>
  return
}
