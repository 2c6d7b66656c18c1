// RUN: rlx-opt %s --rlx-iree-emulate=instructions=f16 | filecheck %s
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=fma | filecheck %s --check-prefix=FMA
// RUN: not rlx-opt %s --rlx-iree-emulate=instructions=f8 2>&1 | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: instructions are some of f16, fma, not f8
// CHECK: arith.bitcast
// CHECK: math.fma
// FMA-NOT: math.fma
// FMA: arith.truncf
func.func @main(%x: f32, %y: f64) -> (f16, f64) {
  %h = arith.truncf %x : f32 to f16
  %m = math.fma %y, %y, %y : f64
  return %h, %m : f16, f64
}
