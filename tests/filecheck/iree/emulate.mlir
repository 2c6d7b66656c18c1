// RUN: rlx-opt %s --rlx-iree-emulate=instructions=f16 | filecheck %s
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=fma | filecheck %s --check-prefix=FMA
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=bf16 | filecheck %s --check-prefix=BF16
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=truncation | filecheck %s --check-prefix=TRUNCATION
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=fma-f32 | filecheck %s --check-prefix=NARROW
// RUN: rlx-opt %s --rlx-iree-emulate=instructions=functions | filecheck %s --check-prefix=FUNCTIONS
// RUN: not rlx-opt %s --rlx-iree-emulate=instructions=f8 2>&1 | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: instructions are some of bf16, f16, fma, fma-f32, functions, remainders, truncation, not f8
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

// NARROW-LABEL: func.func @products
// NARROW-NOT: math.fma
// NARROW: arith.bitcast
// NARROW: math.fma %{{.*}}, %{{.*}}, %cst
// FUNCTIONS-LABEL: func.func @products
// FUNCTIONS: math.fma
// FUNCTIONS-NOT: math.exp
// FUNCTIONS-NOT: math.log
// FUNCTIONS-NOT: math.tanh
// FUNCTIONS: return
func.func @products(%x: f32, %y: f32) -> (f32, f32, f32, f32, f32) {
  %one = arith.constant 1.0 : f32
  %a = math.fma %x, %y, %y : f32
  %b = math.fma %x, %y, %one : f32
  %c = math.exp %x : f32
  %d = math.log %x : f32
  %e = math.tanh %x : f32
  return %a, %b, %c, %d, %e : f32, f32, f32, f32, f32
}
