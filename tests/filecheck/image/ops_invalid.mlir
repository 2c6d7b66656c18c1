// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// A size for another rank.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.resize' op size needs 2 entries for f32[1, 2, 4, 4], got 1}}
  rlx.resize(%0) {mode = "nearest", size = [8]} : (tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32>
  return
}

// -----

// Nothing is between nearest pixels.
func.func @f(%0: tensor<1x2x4x4xf32>) {
  // expected-error @+1 {{'rlx.resize' op align_corners says how to interpolate, and nearest does not}}
  rlx.resize(%0) {align_corners = true, mode = "nearest", size = [8, 8]} : (tensor<1x2x4x4xf32>) -> tensor<1x2x8x8xf32>
  return
}

// -----

// Nothing to resize.
func.func @f(%0: tensor<1x2x0x4xf32>) {
  // expected-error @+1 {{'rlx.resize' op spatial axis 0 of f32[1, 2, 0, 4] is empty: there is nothing to resize to 8}}
  rlx.resize(%0) {mode = "bilinear", size = [8, 8]} : (tensor<1x2x0x4xf32>) -> tensor<1x2x8x8xf32>
  return
}

// -----

// Pairs that do not split in two.
func.func @f(%0: tensor<1x6x12xf32>) {
  // expected-error @+1 {{'rlx.axial_rope_2d' op head_dim = 6 is not a multiple of 4: pairs of lanes turn by column and by row}}
  rlx.axial_rope_2d(%0) {end_x = 3, end_y = 2, head_dim = 6, num_heads = 2} : tensor<1x6x12xf32>
  return
}

// -----

// Another number of tokens.
func.func @f(%0: tensor<1x5x16xf32>) {
  // expected-error @+1 {{'rlx.axial_rope_2d' op 2 heads of 8 for 1·2·3 tokens are [B, 6, 16], got f32[1, 5, 16]}}
  rlx.axial_rope_2d(%0) {end_x = 3, end_y = 2, head_dim = 8, num_heads = 2} : tensor<1x5x16xf32>
  return
}
