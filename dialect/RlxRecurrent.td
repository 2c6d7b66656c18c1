//===- RlxRecurrent.td - Recurrences over a sequence ------------------------------------------===//

#ifndef RLX_RECURRENT_TD
#define RLX_RECURRENT_TD

include "RlxEnums.td"

def RLX_SelectiveScanOp : RLX_Op<"selective_scan", "recurrent", [RLX_IsReduction]> {
  let summary = "State-space recurrence with input-dependent coefficients (Mamba)";
  let description = [{
    `h_t = exp(delta_t·a)·h_{t-1} + delta_t·b_t·x_t`, `result_t = c_t·h_t`, `h_0 = 0` (Gu and Dao, Mamba, eq. 2). `x`
    and `delta [B, S, H]`, `a [H, N]`, `b` and `c [B, S, N]`; result `[B, S, H]`. Computed in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$delta, RLX_FloatTensor:$a, RLX_FloatTensor:$b,
                       RLX_FloatTensor:$c);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GatedDeltaNetOp : RLX_Op<"gated_delta_net", "recurrent", [RLX_IsReduction]> {
  let summary = "Gated delta rule, from a zero state";
  let description = [{`gated_delta_net_carry` with an initial state of zeros, without the final state as a result.}];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v, RLX_FloatTensor:$g,
                       RLX_FloatTensor:$beta);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_GatedDeltaNetCarryOp : RLX_Op<"gated_delta_net_carry", "recurrent", [RLX_IsReduction]> {
  let summary = "Gated delta rule with a carried state";
  let description = [{
    For each step: `S = S·exp(g)`; `d = (v - Sᵀk)·beta`; `S = S + k⊗d`; `o = Sᵀq/sqrt(N)` (Yang et al., Gated
    delta networks, eq. 10). `q`, `k` and `v [B, S, H, N]`, `g` and `beta [B, S, H]`,
    `state [B, H, N, N]` (key by value); results `o [B, S, H, N]` and the state after the last step. Callers
    normalise `q` and `k`. Computed in f32 for f16 and bf16.
  }];
  let arguments = (ins RLX_FloatTensor:$q, RLX_FloatTensor:$k, RLX_FloatTensor:$v, RLX_FloatTensor:$g,
                       RLX_FloatTensor:$beta, RLX_FloatTensor:$state);
  let results = (outs RLX_FloatTensor:$result, RLX_FloatTensor:$next_state);
}

def RLX_LstmOp : RLX_Op<"lstm", "recurrent", [RLX_IsProduct]> {
  let summary = "Long short-term memory over a sequence";
  let description = [{
    `[i, f, g, o] = x_t·w_input + h·w_hidden + bias`; `c = sigmoid(f)·c + sigmoid(i)·tanh(g)`;
    `h = sigmoid(o)·tanh(c)`. `x [B, S, I]`, `h` and `c [B, H]`, `w_input [I, 4H]`, `w_hidden [H, 4H]`, `bias [4H]`;
    results `[B, S, H]` (`h` of every step), and `h` and `c` after the last step. `reverse` runs from the end.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$h, RLX_FloatTensor:$c, RLX_FloatTensor:$w_input,
                       RLX_FloatTensor:$w_hidden, RLX_FloatTensor:$bias, DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let results = (outs RLX_FloatTensor:$result, RLX_FloatTensor:$last_h, RLX_FloatTensor:$last_c);
}

def RLX_GruOp : RLX_Op<"gru", "recurrent", [RLX_IsProduct]> {
  let summary = "Gated recurrent unit over a sequence";
  let description = [{
    `[a_r, a_z, a_n] = x_t·w_input + bias_input`, `[b_r, b_z, b_n] = h·w_hidden + bias_hidden`;
    `r = sigmoid(a_r + b_r)`, `z = sigmoid(a_z + b_z)`, `n = tanh(a_n + r·b_n)`, `h = (1 - z)·n + z·h` (Cho et al.
    2014, with the reset after the product). `x [B, S, I]`, `h [B, H]`, `w_input [I, 3H]`, `w_hidden [H, 3H]`, biases
    `[3H]`; results `[B, S, H]`, and `h` after the last step. `reverse` runs from the end.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$h, RLX_FloatTensor:$w_input, RLX_FloatTensor:$w_hidden,
                       RLX_FloatTensor:$bias_input, RLX_FloatTensor:$bias_hidden,
                       DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let results = (outs RLX_FloatTensor:$result, RLX_FloatTensor:$last_h);
}

#endif // RLX_RECURRENT_TD
