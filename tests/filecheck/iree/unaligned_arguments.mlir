// RUN: rlx-opt %s --split-input-file --allow-unregistered-dialect --rlx-iree-unaligned-arguments | filecheck %s
// RUN: rlx-opt %s --split-input-file --allow-unregistered-dialect --rlx-iree-unaligned-arguments=limit=8 | filecheck %s --check-prefix=ALL

// 128 KiB are copied.
// CHECK-NOT: stream.resources
// CHECK: func.func @small
// CHECK-NOT: subspan
// ALL: module attributes {stream.resources = #stream.resource_config<{{.*}}min_buffer_offset_alignment = 16,
func.func @small(%x: tensor<32768xf32>) -> tensor<32768xf32> {
  return %x : tensor<32768xf32>
}

// -----

// CHECK: module attributes {stream.resources = #stream.resource_config<{{.*}}min_buffer_offset_alignment = 16,
// CHECK: func.func @large
// CHECK: func.func @__rlx.subspan(%[[BUFFER:.*]]: !hal.buffer, %[[OFFSET:.*]]: index, %[[LENGTH:.*]]: index) -> !hal.buffer
// CHECK-NEXT: %[[PART:.*]] = "hal.buffer.subspan"(%[[BUFFER]], %[[OFFSET]], %[[LENGTH]])
// CHECK-NEXT: return %[[PART]]
func.func @large(%x: tensor<32769xf32>) -> tensor<32769xf32> {
  return %x : tensor<32769xf32>
}

// -----

// CHECK: module attributes {stream.resources
// CHECK: func.func @open
func.func @open(%x: tensor<?xi1>) -> tensor<?xi1> {
  return %x : tensor<?xi1>
}
