// RUN: rlx-opt %s --rlx-iree-emulate=instructions=f16 | filecheck %s
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=fma | filecheck %s --check-prefix=FMA
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=bf16 | filecheck %s --check-prefix=BF16
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=truncation | filecheck %s --check-prefix=TRUNCATION
// RUN: not rlx-opt %s --rlx-iree-emulate=instructions=f8 2>&1 | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: instructions are some of bf16, f16, fma, truncation, not f8
// CHECK: arith.bitcast
// CHECK: math.fma
// FMA-NOT: math.fma
// FMA: arith.truncf
// BF16-NOT: arith.truncf %{{.*}} : f32 to bf16
// BF16: arith.truncf %{{.*}} : f32 to f16
// TRUNCATION: math.floor
// TRUNCATION: arith.fptosi
func.func @main(%x: f32, %y: f64) -> (bf16, f16, f64, i32) {
  %b = arith.truncf %x : f32 to bf16
  %h = arith.truncf %x : f32 to f16
  %m = math.fma %y, %y, %y : f64
  %i = arith.fptosi %x : f32 to i32
  return %b, %h, %m, %i : bf16, f16, f64, i32
}
