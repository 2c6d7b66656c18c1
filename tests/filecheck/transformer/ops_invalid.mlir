// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// 14 operands where 15 are needed.
module attributes {rlx.stage = "hir"} {
  func.func @llama_decoder_block(%0: tensor<2x5x8xf32>, %1: tensor<8xf32>, %2: tensor<8xf32>, %3: tensor<8x8xf32>, %4: tensor<8x4xf32>, %5: tensor<8x4xf32>, %6: tensor<8x8xf32>, %7: tensor<8xf32>, %8: tensor<8xf32>, %9: tensor<8x12xf32>, %10: tensor<8x12xf32>, %11: tensor<12x8xf32>, %12: tensor<5x1xf32>, %13: tensor<5x1xf32>) {
    // expected-error @+1 {{'rlx.llama_decoder_block' op mask_kind 'bias' needs 15 operands, got 14: the mask is missing}}
    rlx.llama_decoder_block(%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13) {head_dim = 2, mask_kind = "bias", num_heads = 4, num_kv_heads = 2} : (tensor<2x5x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<8x12xf32>, tensor<12x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> tensor<2x5x8xf32>
    return
  }
}

// -----

// Weights for another number of heads.
module attributes {rlx.stage = "hir"} {
  func.func @llama_decoder_block(%0: tensor<2x5x8xf32>, %1: tensor<8xf32>, %2: tensor<8xf32>, %3: tensor<8x8xf32>, %4: tensor<8x4xf32>, %5: tensor<8x4xf32>, %6: tensor<8x8xf32>, %7: tensor<8xf32>, %8: tensor<8xf32>, %9: tensor<8x12xf32>, %10: tensor<8x12xf32>, %11: tensor<12x8xf32>, %12: tensor<5x1xf32>, %13: tensor<5x1xf32>) {
    // expected-error @+1 {{'rlx.llama_decoder_block' op wk must be [8, 2], got f32[8, 4]}}
    rlx.llama_decoder_block(%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13) {head_dim = 2, num_heads = 4, num_kv_heads = 1} : (tensor<2x5x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<8x12xf32>, tensor<12x8xf32>, tensor<5x1xf32>, tensor<5x1xf32>) -> tensor<2x5x8xf32>
    return
  }
}

// -----

// A width that does not divide into heads.
module attributes {rlx.stage = "hir"} {
  func.func @transformer_encoder_block(%0: tensor<2x5x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>, %3: tensor<8x8xf32>, %4: tensor<8xf32>, %5: tensor<8x8xf32>, %6: tensor<8xf32>, %7: tensor<8x8xf32>, %8: tensor<8xf32>, %9: tensor<8xf32>, %10: tensor<8xf32>, %11: tensor<8x12xf32>, %12: tensor<12xf32>, %13: tensor<12x8xf32>, %14: tensor<8xf32>, %15: tensor<8xf32>, %16: tensor<8xf32>) {
    // expected-error @+1 {{'rlx.transformer_encoder_block' op f32[2, 5, 8] does not divide into 3 heads}}
    rlx.transformer_encoder_block(%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16) {num_heads = 3} : (tensor<2x5x8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<12xf32>, tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<2x5x8xf32>
    return
  }
}
