//===- RlxSignal.td - Fourier transforms ------------------------------------------------------===//

#ifndef RLX_SIGNAL_TD
#define RLX_SIGNAL_TD

include "RlxEnums.td"

def RLX_FftOp : RLX_Op<"fft", "fft"> {
  let summary = "Discrete Fourier transform along an axis";
  let description = [{
    `result[k] = c·sum_n x[n]·exp(∓2πi·k·n/N)`, minus for the forward transform; `norm` says where `c` is not 1,
    with NumPy's names.
    Any length. The axis must not be empty. Of a length that is a symbol when a back end without transforms of its
    own compiles it, the whole matrix is multiplied with, in time and memory in proportion to `N^2`: bind it.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$inverse,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_RfftOp : RLX_Op<"rfft", "fft"> {
  let summary = "Discrete Fourier transform of real numbers";
  let description = [{The first `N//2 + 1` elements of `fft(x)` along `axis`: the others are their conjugates.}];
  let arguments = (ins RLX_PartTensor:$x, I64Attr:$axis, DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_IrfftOp : RLX_Op<"irfft", "fft"> {
  let summary = "Inverse of the Fourier transform of real numbers";
  let description = [{
    The real inverse transform, of `length` elements along `axis`, of a spectrum of `length//2 + 1` elements
    that stands for a Hermitian one.
    The imaginary parts of its first and, for an even length, last element are not read. `length` is a list of
    one dimension.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, RLX_ShapeAttr:$length,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_PartTensor:$result);
}

#endif // RLX_SIGNAL_TD
