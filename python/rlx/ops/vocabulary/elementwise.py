"""Names of other libraries: elementwise functions, random numbers and tensor creation."""

from __future__ import annotations

from rlx.ops.vocabulary import table

ELEMENTWISE = table("""
positive : x itself
conj conj_physical resolve_conj resolve_neg : g.conjugate(x), or x itself where it is real
sgn : g.sign(x)
swish : g.silu(x)
hardswish hard_silu : g.hard_swish(x)
hardsigmoid : g.hard_sigmoid(x)
hardtanh : g.hard_tanh(x), or g.clip(x, low, high) for other limits
softsign : g.soft_sign(x)
logsigmoid : g.log_sigmoid(x)
log_softplus : g.softplus(x)
tanhshrink : x - g.tanh(x)
squareplus : (x + g.sqrt(x * x + 4)) / 2
sparse_plus : g.where(x <= -1, 0, g.where(x < 1, (x + 1) ** 2 / 4, x))
sparse_sigmoid : g.clip((x + 1) / 2, 0, 1)
rrelu : g.leaky_relu(x, (lower + upper) / 2), as it is outside of training
log1mexp : g.where(x < 0.6931, g.log(-g.expm1(-x)), g.log1p(-g.exp(-x)))
prelu : g.leaky_relu(x, slope), or g.where(x > 0, x, slope * x) for a tensor
softshrink : g.sign(x) * g.relu(g.abs(x) - lambd)
hardshrink : g.where(g.abs(x) > lambd, x, 0)
threshold : g.where(x > threshold, x, value)
gelu_tanh gelu_new : g.gelu_approx(x)
swiglu : g.silu(gate) * up
log_ndtr : g.log(g.erfc(-x / 2**0.5) / 2)
ndtr : g.erfc(-x / 2**0.5) / 2
ndtri : 2**0.5 * g.erfinv(2 * x - 1)
erf_inv : g.erfinv(x)
erfcx : g.exp(x * x) * g.erfc(x), for x < 9 in f32
psi : g.digamma(x)
loggamma : g.lgamma(x)
gammasgn : g.where(x > 0, 1, g.cos(np.pi * g.floor(x)))
factorial : g.exp(g.lgamma(x + 1))
betaln : g.lgamma(a) + g.lgamma(b) - g.lgamma(a + b)
beta : g.exp(g.lgamma(a) + g.lgamma(b) - g.lgamma(a + b)) for the function, and a / (a + b) of two gammas for samples
comb binom : g.exp(g.lgamma(n + 1) - g.lgamma(k + 1) - g.lgamma(n - k + 1))
poch : g.exp(g.lgamma(z + m) - g.lgamma(z))
multigammaln mvlgamma : d * (d - 1) / 4 * np.log(np.pi) + the sum of g.lgamma(x - i / 2) for i in range(d)
xlog1py : g.where(x == 0, 0, x * g.log1p(y))
entr : -g.xlogy(x, x)
rel_entr : g.xlogy(x, x / y)
boxcox : g.where(lmbda == 0, g.log(x), g.expm1(lmbda * g.log(x)) / lmbda)
boxcox1p : g.where(lmbda == 0, g.log1p(x), g.expm1(lmbda * g.log1p(x)) / lmbda)
gamma : g.exp(g.lgamma(x)) for the function, and rlx.jax_function of jax.random.gamma for samples
i0 i1 i0e i1e bessel_j0 bessel_j1 zeta polygamma betainc gammainc igamma : rlx.jax_function of jax.scipy.special
bessel_jn bessel_i0e bessel_i1e dawsn exp1 expi expn fresnel gammaincc igammac : rlx.jax_function of jax.scipy.special
hyp1f1 hyp2f1 owens_t sici spence sph_harm_y wofz igamma_grad_a : rlx.jax_function of jax.scipy.special
modified_bessel_i0 modified_bessel_i1 scaled_modified_bessel_i0 : rlx.jax_function of jax.scipy.special.i0, i1 or i0e
airy_ai bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 spherical_bessel_j0 : g.interp(x, xs, scipy's values)
scaled_modified_bessel_k0 scaled_modified_bessel_k1 : g.interp(x, xs, ys) with the values of scipy.special.kve
chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w : a, b = b, 2 * x * b - a of \
each order
legendre_polynomial_p hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l : a, b = b, … of each order, by its \
recurrence
fmax : g.where(g.isnan(a), b, g.where(g.isnan(b), a, g.maximum(a, b))); g.maximum(a, b) gives NaN where one is
fmin : g.where(g.isnan(a), b, g.where(g.isnan(b), a, g.minimum(a, b))); g.minimum(a, b) gives NaN where one is
clamp_min : g.clamp(x, low=…)
clamp_max : g.clamp(x, high=…)
clip_by_value : g.clip(x, low, high)
rsub : y - x
rdiv : y / x
addcmul : x + value * a * b
addcdiv : x + value * a / b
logaddexp2 : g.logaddexp(a * g.log(2.0), b * g.log(2.0)) / g.log(2.0)
ldexp : x * g.exp2(n)
frexp : n = g.floor(g.log2(g.abs(x))) + 1 and x * g.exp2(-n)
modf : g.fmod(x, 1), g.trunc(x)
spacing : g.nextafter(x, np.inf) - x of positive x
float_power : g.pow(g.cast(x, rlx.f64), y), or x ** y in the dtype of x
integer_pow : x ** n
rem : g.fmod(a, b), whose sign is that of the dividend
mulhi mul_hi : g.cast(g.cast(a, rlx.i64) * b >> 32, rlx.i32)
clz : 31 - g.floor(g.log2(x)) of positive i32
population_count : g.popcount(x)
shift_left : g.left_shift(x, n)
shift_right_arithmetic : g.right_shift(x, n)
gcd lcm : g.while_(cond, body, a, b) with the remainder of the two
reduce_precision : g.cast(g.cast(x, rlx.bf16), x.dtype)
angle : g.atan2(g.imag(x), g.real(x))
polar : g.complex(r * g.cos(angle), r * g.sin(angle)) for numbers, and g.svd(a) for the factors of a matrix
view_as_complex : g.complex(x[..., 0], x[..., 1])
view_as_real : g.stack([g.real(x), g.imag(x)], axis=-1)
real_if_close : g.real(x)
is_finite : g.isfinite(x)
isposinf : x == np.inf
isneginf : x == -np.inf
isreal : g.imag(x) == 0, and True of real numbers
iscomplex : g.imag(x) != 0, and False of real numbers
is_nonzero : x != 0
select select_n choose : g.where(condition, a, b); of two lists g.where for each, the last condition first
piecewise : g.where(condition, a, g.where(other, b, c))
unwrap : d = g.diff(x); x[0] + g.cumsum(d - 2 * np.pi * g.round(d / (2 * np.pi)), 0) and x[0] before
fill fill_ : g.full_like(x, value)
zero zero_ : g.zeros_like(x)
is_neg : False: -x is computed
""")

MAKING = table("""
asarray array as_tensor from_numpy Tensor const as_constant literal tensor : g.constant(array)
asanyarray ascontiguousarray asfortranarray asarray_chkfinite scalar_tensor from_dlpack : g.constant(array)
new_empty_strided : g.zeros(shape, x.dtype)
frombuffer fromiter fromfunction fromstring fromfile genfromtxt loadtxt : g.constant(array) of what NumPy makes
require asmatrix bmat unpackbits packbits : g.constant(array) of what NumPy makes
empty empty_strided empty_permuted : g.zeros(shape)
empty_like : g.zeros_like(x)
new_zeros new_empty : g.zeros(shape, x.dtype)
new_ones : g.ones(shape, x.dtype)
new_full : g.full(shape, fill_value, x.dtype)
new_tensor new : g.constant(array, x.dtype)
identity : g.eye(n)
broadcasted_iota : g.iota(shape, axis=…)
range : g.arange(start, stop + step, step)
logspace : 10 ** g.linspace(start, stop, n)
geomspace : g.exp(g.linspace(np.log(start), np.log(stop), n))
indices : g.stack([g.iota(shape, axis=k) for k in range(len(shape))])
mgrid ogrid : g.meshgrid(a, b, indexing='ij') of g.arange(n) for each axis
ix_ : g.meshgrid(…) of the indices, with indexing='ij'
tril_indices triu_indices mask_indices : g.tril(x) and g.triu(x), or np.tril_indices(n) as an index
tril_indices_from triu_indices_from : g.tril(x) and g.triu(x), or np.tril_indices(n) as an index
diag_indices diag_indices_from : g.diagonal(x), or i = g.arange(n) and x[i, i]
vander : x[:, None] ** g.arange(n)[::-1], with increasing=True x[:, None] ** g.arange(n)
hanning : g.constant(np.hanning(n), rlx.f32)
hamming : g.constant(np.hamming(n), rlx.f32)
blackman : g.constant(np.blackman(n), rlx.f32)
bartlett : g.constant(np.bartlett(n), rlx.f32)
kaiser : g.constant(np.kaiser(n, beta), rlx.f32)
hann_window : g.constant(np.hanning(n + 1)[:-1], rlx.f32)
hamming_window : g.constant(np.hamming(n + 1)[:-1], rlx.f32)
blackman_window : g.constant(np.blackman(n + 1)[:-1], rlx.f32)
bartlett_window : g.constant(np.bartlett(n + 1)[:-1], rlx.f32)
kaiser_window : g.constant(np.kaiser(n + 1, 12.0)[:-1], rlx.f32)
hilbert invhilbert pascal invpascal hadamard helmert dft fiedler : g.constant(array), which scipy.linalg makes
toeplitz hankel circulant companion leslie convolution_matrix fiedler_companion : x[i - j] with an array of indices
""")

RANDOM = table("""
rand random random_sample ranf : g.rng_uniform(shape, seed=0)
uniform : g.rng_uniform(shape, seed=0, low=0.0, high=1.0)
rand_like uniform_like : g.rng_uniform(x.shape, seed=0)
randn standard_normal : g.rng_normal(shape, seed=0)
normal gaussian : g.rng_normal(shape, seed=0, mean=0.0, std=1.0)
truncated_normal : 2**0.5 * g.erfinv(0.9545 * g.rng_uniform(shape, seed=0, low=-1, high=1)) between -2 and 2
randn_like normal_like : g.rng_normal(x.shape, seed=0)
randint integers random_integers randint_like : low + g.cast(g.random_bits(seed, shape) % (high - low), rlx.i32)
bits bytes rng_bit_generator : g.random_bits(seed, shape)
bernoulli : g.rng_uniform(shape, seed) < p
binomial : g.sum(g.rng_uniform((n, *shape), seed) < p, axis=0)
rademacher : g.where(g.rng_uniform(shape, seed) < 0.5, -1.0, 1.0)
categorical : g.sample(logits, seed=0)
multinomial : g.sample(g.log(probabilities), seed=0), which draws one of each row
choice : x[g.argsort(g.rng_uniform(x.shape, seed))[:n]] without replacement
randperm : g.argsort(g.rng_uniform((n,), seed=0))
permutation shuffle permuted : i = g.argsort(g.rng_uniform((n,), seed=0)); g.take(x, i, axis)
exponential standard_exponential : -g.log(1 - g.rng_uniform(shape, seed))
gumbel : -g.log(-g.log(g.rng_uniform(shape, seed)))
laplace : u = g.rng_uniform(shape, seed) - 0.5; -g.sign(u) * g.log1p(-2 * g.abs(u))
logistic : g.logit(g.rng_uniform(shape, seed))
cauchy standard_cauchy : g.tan(np.pi * (g.rng_uniform(shape, seed) - 0.5))
lognormal log_normal : g.exp(g.rng_normal(shape, seed, mean, std))
rayleigh : scale * g.sqrt(-2 * g.log(1 - g.rng_uniform(shape, seed)))
pareto weibull weibull_min : a power of -g.log(1 - g.rng_uniform(shape, seed))
geometric : g.ceil(g.log(1 - g.rng_uniform(shape, seed)) / np.log(1 - p))
multivariate_normal : mean + g.rng_normal(shape, seed) @ g.cholesky(cov).mT
orthogonal : g.qr(g.rng_normal((n, n), seed))[0]
chisquare standard_gamma dirichlet poisson standard_t vonmises wald zipf f : rlx.jax_function of jax.random, or NumPy
negative_binomial hypergeometric logseries noncentral_chisquare noncentral_f : rlx.jax_function of jax.random, or NumPy
multivariate_hypergeometric ball maxwell double_sided_maxwell generalized_normal : rlx.jax_function of jax.random
gumbel_softmax : y = g.softmax((x - g.log(-g.log(g.rng_uniform(x.shape, seed=0)))) / tau); with hard=True \
g.one_hot(g.argmax(y, -1), n, y.dtype) + y - g.stop_gradient(y)
manual_seed seed set_state set_rng_state default_rng PRNGKey key : a seed for each call: g.rng_normal(shape, seed=0)
get_state get_rng_state initial_seed spawn fold_in bit_generator : seeds are integers: g.rng_normal(shape, seed=7)
wrap_key_data key_data key_impl key_dtype : seeds are integers: g.rng_normal(shape, seed=7)
alpha_dropout feature_alpha_dropout : g.dropout(x, rate), then scaled and shifted
dropout1d dropout2d dropout3d feature_dropout : x * g.dropout(g.ones((n, c, 1, 1)), rate)
""")
