"""Names inside modules of other libraries, where the name alone has another meaning in RLX."""

from __future__ import annotations

from rlx.ops.vocabulary import table

# Names that are modules in other libraries but not in RLX. The name looked up in them determines the advice.
SPACES = frozenset(
    {
        *("nn", "functional", "linalg", "lax", "ops", "np", "jnp", "numpy", "scipy", "special", "random", "fft"),
        *("image", "signal", "stats", "ndimage", "optim"),
    }
)

WITHIN = table("""
random.split random.fold_in : seeds are integers: seed=1 and seed=2 give other numbers
random.Generator random.RandomState random.default_rng random.PRNGKey random.key random.seed random.get_state : a seed for \
each call: g.rng_normal(shape, seed=0), g.rng_uniform(shape, seed=0)
lax.map : rlx.vmap(graph, …) of a graph, or g.scan(lambda c, a: (c, f(a)), 0.0, x)[1]
lax.max : g.maximum(a, b)
lax.min : g.minimum(a, b)
lax.clamp : g.clip(x, low, high)
lax.select : g.where(condition, a, b)
lax.pad : g.pad(x, [(low, high), …], value=0.0); before it, padding within an axis is g.zeros(shape).at[::2].set(x)
lax.sort : i = g.argsort(keys); g.take_along_axis(keys, i, -1), g.take_along_axis(values, i, -1)
lax.cumsum : g.cumsum(x, axis), with reverse=True g.flip(g.cumsum(g.flip(x, axis), axis), axis)
lax.cumprod : g.cumprod(x, axis), with reverse=True g.flip(g.cumprod(g.flip(x, axis), axis), axis)
lax.cummax : g.cummax(x, axis), with reverse=True g.flip(g.cummax(g.flip(x, axis), axis), axis)
lax.reduce_window : g.max_pool(x, kernel, stride=…, padding=…) of the last axes, g.sum_pool, g.avg_pool
lax.dot : a @ b
lax.full : g.full(shape, fill_value, dtype)
lax.iota : g.arange(size)
lax.cond : g.if_(pred, then, els, *args)
lax.argmax : g.argmax(x, axis)
lax.argmin : g.argmin(x, axis)
lax.squeeze : g.squeeze(x, axis)
lax.gather : x[indices], or g.take(x, indices, axis)
lax.scatter : x.at[indices].set(values)
lax.scatter_add : x.at[indices].add(values)
lax.slice : x[start:stop]
lax.transpose : g.transpose(x, perm)
lax.reduce : g.sum(x, axis=…), g.max(x, axis=…), g.prod(x, axis=…)
lax.conv : g.conv(x, w, stride=…, padding=…)
norm.logpdf : -(((x - mean) / std) ** 2 + np.log(2 * np.pi)) / 2 - np.log(std)
norm.pdf : g.exp(-(((x - mean) / std) ** 2) / 2) / (std * np.sqrt(2 * np.pi))
norm.cdf : g.erfc((mean - x) / std / 2**0.5) / 2
norm.ppf : mean + std * 2**0.5 * g.erfinv(2 * q - 1)
signal.convolve signal.fftconvolve : g.conv(x[None, None], g.flip(w, (0, 1))[None, None], padding='same')[0, 0] of rank 2
ndimage.map_coordinates : g.grid_sample(x[None, None], grid, align_corners=True), whose grid is (x, y) from -1 to 1
special.logsumexp : g.logsumexp(x, axis), with weights g.logsumexp(x + g.log(b), axis)
linalg.norm : g.norm(x, axis=…), g.matrix_norm(x, 'fro')
linalg.expm : g.matrix_exp(a)
linalg.matmul : a @ b
image.resize : g.resize(x, size=(height, width), mode='bilinear') of [N, C, H, W]
""")
