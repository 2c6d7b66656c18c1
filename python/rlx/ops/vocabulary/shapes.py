"""Names of other libraries: reductions, sorting, shapes, indices and updates."""

from __future__ import annotations

from rlx.ops.vocabulary import table

REDUCING = table("""
aminmax : g.min(x, axis=…) and g.max(x, axis=…)
var_mean : g.var(x, axis=…, ddof=1) and g.mean(x, axis=…)
std_mean : g.std(x, axis=…, ddof=1) and g.mean(x, axis=…)
product reduce_prod : g.prod(x, axis=…)
reduce_max pmax : g.max(x, axis=…)
reduce_min pmin : g.min(x, axis=…)
reduce_sum sum_to_size : g.sum(x, axis=…)
reduce_mean : g.mean(x, axis=…)
reduce_and : g.all(x, axis=…)
reduce_or : g.any(x, axis=…)
reduce_xor : g.sum(x, axis=…) % 2 == 1 of bools
logmeanexp : g.logsumexp(x, axis) - np.log(x.shape[axis])
nanvar nanstd : g.nanmean((x - g.nanmean(x, axis, True)) ** 2, axis), and its g.sqrt
nanargmax : g.argmax(g.where(g.isnan(x), -np.inf, x), axis)
nanargmin : g.argmin(g.where(g.isnan(x), np.inf, x), axis)
nancumsum : g.cumsum(g.where(g.isnan(x), 0, x), axis)
nancumprod : g.cumprod(g.where(g.isnan(x), 1, x), axis)
nanmedian nanquantile nanpercentile : g.sort(x, axis), NaN last; of those, the ones at a share of g.sum(~g.isnan(x), axis)
percentile : g.quantile(x, q / 100, axis=…), of several [0.25, 0.75]
cumlogsumexp : g.logcumsumexp(x, axis)
cumulative_trapezoid : g.cumsum(y[..., 1:] + y[..., :-1], -1) * dx / 2
trapezoid trapz : g.sum(y[..., 1:] + y[..., :-1], axis=-1) * dx / 2
gradient : g.concat([x[1:2] - x[:1], (x[2:] - x[:-2]) / 2, x[-1:] - x[-2:-1]], axis=0) / dx; \
rlx.grad(g, wrt=[…]) for derivatives
ediff1d : g.diff(g.ravel(x))
top_k approx_max_k : g.topk(x, k)
approx_min_k : g.topk(x, k, largest=False)
histc : g.histogram(x, bins=n, range=(low, high))
histogram_bin_edges : g.histogram(x, bins=n, range=(low, high))[1]
histogram2d histogramdd : g.bincount(g.ravel_multi_index([g.digitize(x, xs), g.digitize(y, ys)], dims), length=n)
msort sort_complex : g.sort(x, axis=0)
kthvalue : g.narrow(g.sort(x, axis), axis, k - 1, 1), and of g.argsort(x, axis) for the position
mode : g.argmax(g.bincount(x, length=n))
bucketize : g.searchsorted(boundaries, x), with right=True side='right'
lexsort : g.argsort(x, axis) of the last key, and so on to the first: it is stable
sort_key_val : i = g.argsort(keys); keys[i], values[i]
partition : g.sort(x, axis), or g.topk(x, k)
argpartition : g.argsort(x, axis)
unique_values : g.unique(x, size=n)
unique_counts : g.unique(x, return_counts=True, size=n)
unique_inverse : g.unique(x, return_inverse=True, size=n)
unique_all : g.unique(x, True, True, True, size=n)
unique_consecutive : g.unique(x, size=n) of a sorted x
union1d : g.unique(g.concat([a, b]), size=n)
intersect1d : g.where(g.isin(a, b), a, fill)
setdiff1d : g.where(g.isin(a, b), fill, a)
setxor1d : g.where(g.isin(a, b), fill, a) and g.where(g.isin(b, a), fill, b)
cov : x = x - g.mean(x, axis=1, keepdims=True); x @ x.T / (x.shape[1] - 1), of x.T where the variables are columns
corrcoef : x = x - g.mean(x, axis=1, keepdims=True); g.normalize(x) @ g.normalize(x).T, of x.T where the variables are columns
array_equiv : g.all(a == b)
polyval : g.sum(g.constant(coefficients) * x[..., None] ** g.arange(n)[::-1], axis=-1)
polyadd polysub polymul polydiv polyint polyder poly polyfit roots : numpy.polynomial of arrays; of tensors g.lstsq(a, b)
""")

SHAPING = table("""
cat : g.concat([a, b], axis=0)
hstack : g.concat([a, b], axis=1), axis=0 for rank 1
vstack : g.concat([a, b], axis=0) of rank 2, g.stack([a, b]) of rank 1
row_stack : g.stack([a, b]) of rank 1, g.concat([a, b], axis=0) of rank 2
dstack : g.stack([a, b], axis=2) of rank 2
column_stack : g.stack([a, b], axis=1) of rank 1, g.concat([a, b], axis=1) of rank 2
append : g.concat([x, values], axis=…), of one number g.concat([g.ravel(x), g.constant([3.0])], axis=0)
insert : g.concat([x[:i], values, x[i:]], axis=0), g.constant([3.0]) for one number
delete : g.concat([x[:i], x[i + 1:]], axis=0)
block : g.concat([g.concat(row, axis=1) for row in rows], axis=0)
block_diag : g.concat([g.pad(a, [(0, 0), (0, m)]), g.pad(b, [(0, 0), (n, 0)])], axis=0)
hsplit : g.split(x, n, axis=1)
vsplit : g.split(x, n, axis=0)
dsplit : g.split(x, n, axis=2)
tensor_split : g.array_split(x, n, axis=0)
split_with_sizes : g.split(x, borders, axis), at the sums of the sizes
unbind : g.unstack(x, axis=0)
view unflatten : g.reshape(x, shape)
view_as reshape_as : g.reshape(x, other.shape)
collapse : g.flatten(x, start_axis, end_axis - 1)
expand_as broadcast_like : g.expand(x, other.shape)
broadcast : g.broadcast_to(x, (*sizes, *x.shape))
broadcast_in_dim broadcast_to_rank : g.expand(x, shape), after g.expand_dims(x, axes)
broadcast_arrays broadcast_tensors : g.broadcast_to(x, shape) of each
broadcast_shapes : np.broadcast_shapes(a.shape.dims, b.shape.dims)
movedim rollaxis : g.moveaxis(x, source, destination)
matrix_transpose : g.swapaxes(x, -1, -2), or x.mT
rev : g.flip(x, axis)
swapdims : g.swapaxes(x, axis1, axis2)
t : x.T
fliplr : g.flip(x, axis=1)
flipud : g.flip(x, axis=0)
repeat_interleave : g.repeat(x, repeats, axis)
atleast_1d : g.reshape(x, (1,))
atleast_2d : g.expand_dims(x, 0)
atleast_3d : g.expand_dims(x, (0, -1)) of rank 1, x[..., None] of rank 2
constant_pad_nd : g.pad(x, padding, value=…), of pairs for each axis in their order
trim_zeros : x[first:last]: a shape may not depend on values
shape : x.shape
size : x.size
rank ndim : x.rank
isscalar : x.rank == 0
cartesian_prod : g.stack([g.ravel(t) for t in g.meshgrid(a, b, indexing='ij')], axis=1)
combinations : x[i], x[j] with i, j = np.triu_indices(n, 1)
diag_embed : x[..., None] * g.eye(n)
diagflat : g.diag(g.ravel(x))
fill_diagonal : g.where(g.eye(n, dtype='bool'), value, x)
as_strided : x[i] with the indices i = start + g.arange(n)[:, None] * step + g.arange(m)
""")

INDEXING = table("""
index_select index_take : g.gather(x, indices, axis=…)
take_along_dim : g.take_along_axis(x, indices, axis)
dynamic_index_in_dim : g.dynamic_slice_in_dim(x, i, 1, axis), with keepdims=False g.take(x, i, axis)
index_in_dim : x[i], or g.narrow(x, axis, i, 1)
slice_in_dim : g.narrow(x, axis, start, limit - start)
dynamic_update_index_in_dim : g.dynamic_update_slice_in_dim(x, g.expand_dims(update, axis), i, axis)
nonzero_static : g.argwhere(x, size=n)
masked_fill : g.where(mask, value, x)
masked_select compress extract : g.where(mask, x, 0): a shape may not depend on values
masked_scatter : g.where(mask, g.take(g.ravel(values), g.reshape(g.cumsum(g.ravel(mask), 0) - 1, x.shape)), x)
scatter scatter_reduce : g.put_along_axis(x, indices, values, axis, reduction='set'), or x.at[…].set(values)
index_put place putmask copyto put index_reduce : x.at[indices].set(values), or g.where(mask, values, x)
index_fill : x.at[indices].set(value)
scatter_sub scatter_mul scatter_max scatter_min scatter_apply : x.at[indices].subtract(values), .multiply, .max, .min, .apply
select_scatter slice_scatter diagonal_scatter as_strided_scatter : x.at[…].set(values)
set_item : x.at[index].set(values)
segment_sum : g.scatter_add(data, segment_ids, num_segments)
segment_max : g.full((num_segments, *data.shape.dims[1:]), -np.inf).at[segment_ids].max(data)
segment_min : g.full((num_segments, *data.shape.dims[1:]), np.inf).at[segment_ids].min(data)
segment_prod : g.ones((num_segments, *data.shape.dims[1:])).at[segment_ids].multiply(data)
embedding_lookup : g.embedding(table, indices)
embedding_bag : g.mean(g.embedding(table, indices), axis=1), g.sum or g.max
""")
