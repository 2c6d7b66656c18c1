// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-to-stablehlo{shardings=sdy})' | filecheck %s
// RUN: rlx-opt %s --rlx-to-stablehlo="shardings=text entry=main" | filecheck %s --check-prefix=TEXT
// RUN: rlx-opt %s --rlx-to-stablehlo | filecheck %s --check-prefix=WITHOUT

module attributes {rlx.mesh = "data=4, model=2", rlx.stage = "lir"} {
  func.func @f(%x: tensor<8x4xf32> {rlx.name = "x", rlx.sharding = "data, _"}, %s: tensor<4xf32> {rlx.name = "s", rlx.kind = "state", rlx.sharding = "model"})
      -> (tensor<8x4xf32> {rlx.name = "y"}, tensor<4xf32> {rlx.updates = "s"}) {
    %0 = rlx.shard(%x) {sharding = "data+model, _"} : tensor<8x4xf32>
    return %0, %s : tensor<8x4xf32>, tensor<4xf32>
  }
}

// CHECK: module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
// CHECK: sym_name = "mesh"
// CHECK: func.func @f(%arg0: tensor<8x4xf32> {sdy.sharding =
// CHECK-SAME: "data"}, {}]>}, %arg1: tensor<4xf32> {sdy.sharding =
// CHECK-SAME: -> (tensor<8x4xf32>, tensor<4xf32> {sdy.sharding =
// CHECK: "sdy.sharding_constraint"(%arg0) {sharding = #sdy.sharding<@mesh,
// CHECK-SAME: "data", "model"}, {}]>}

// TEXT: module attributes {mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[\22data\22=4, \22model\22=2]>}"}
// TEXT-SAME: mhlo.num_partitions = 8
// TEXT: func.func @main(%arg0: tensor<8x4xf32> {mhlo.frontend_attributes = {xla.sdy.sharding =
// TEXT: stablehlo.custom_call @Sharding(%arg0)

// WITHOUT-NOT: sdy
// WITHOUT-NOT: rlx
// WITHOUT: func.func @f(%[[X:.*]]: tensor<8x4xf32>, %[[S:.*]]: tensor<4xf32>)
// WITHOUT: return %[[X]], %[[S]]
