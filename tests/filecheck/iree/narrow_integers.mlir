// RUN: rlx-opt %s --rlx-iree-narrow-integers | filecheck %s

// Of integers of 8 and 16 bits, the upper bits of a register are set where they count.
// CHECK-LABEL: func.func @narrow
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.shrui %{{.*}} : i32
// CHECK: arith.trunci %{{.*}} : i32 to i8
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.divsi %{{.*}} : i32
// CHECK: arith.shli %{{.*}} : i32
// CHECK: arith.cmpi slt, %{{.*}} : i32
// CHECK: arith.cmpi sgt, %{{.*}} : i32
// CHECK: arith.select %{{.*}} : i8
// CHECK: arith.shrsi %{{.*}} : i32
// CHECK: arith.extsi %{{.*}} : i32 to i64
func.func @narrow(%a: i8, %b: i8) -> (i8, i8, i1, i8, i64) {
  %shifted = arith.shrui %a, %b : i8
  %divided = arith.divsi %a, %b : i8
  %less = arith.cmpi slt, %a, %b : i8
  %larger = arith.maxsi %a, %b : i8
  %long = arith.extsi %a : i8 to i64
  return %shifted, %divided, %less, %larger, %long : i8, i8, i1, i8, i64
}

// Sums do not read them, and wider integers have none.
// CHECK-LABEL: func.func @others
// CHECK-NOT: arith.ext
// CHECK: arith.addi %{{.*}} : i8
// CHECK: arith.maxsi %{{.*}} : i32
func.func @others(%a: i8, %b: i32) -> (i8, i32) {
  %sum = arith.addi %a, %a : i8
  %larger = arith.maxsi %b, %b : i32
  return %sum, %larger : i8, i32
}

// Bits are counted by sums.
// CHECK-LABEL: func.func @count
// CHECK-NOT: math.ctpop
// CHECK: arith.muli %{{.*}} : i64
func.func @count(%a: i16, %b: i64) -> (i16, i64) {
  %few = math.ctpop %a : i16
  %many = math.ctpop %b : i64
  return %few, %many : i16, i64
}
