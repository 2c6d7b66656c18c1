//===- RlxSignal.td - Fourier transforms ------------------------------------------------------===//

#ifndef RLX_SIGNAL_TD
#define RLX_SIGNAL_TD

include "RlxEnums.td"

def RLX_FftOp : RLX_Op<"fft", "fft"> {
  let summary = "Discrete Fourier transform along an axis";
  let description = [{
    `result[k] = c·sum_n x[n]·exp(∓2πi·k·n/N)`, minus for the forward transform; `norm` determines `c`, with NumPy's
    names. The length is arbitrary, but the axis must not be empty. A back end without its own transforms compiles a
    symbolic length as a product with the whole matrix, in time and memory proportional to `N^2`: bind the length
    instead.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$inverse,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_RfftOp : RLX_Op<"rfft", "fft"> {
  let summary = "Discrete Fourier transform of real numbers";
  let description = [{The first `N//2 + 1` elements of `fft(x)` along `axis`. The other elements are their conjugates.}];
  let arguments = (ins RLX_PartTensor:$x, I64Attr:$axis, DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_IrfftOp : RLX_Op<"irfft", "fft"> {
  let summary = "Inverse of the Fourier transform of real numbers";
  let description = [{
    The real inverse transform, of `length` elements along `axis`, of a spectrum of `length//2 + 1` elements that
    represents a Hermitian spectrum. The imaginary parts of its first and, for an even length, last element are not
    read. `length` is a list of one dimension.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, I64Attr:$axis, RLX_ShapeAttr:$length,
                       DefaultValuedAttr<RLX_FftNorm, "\"backward\"">:$norm);
  let results = (outs RLX_PartTensor:$result);
}

#endif // RLX_SIGNAL_TD
