"""Names of other libraries: products, matrices, Fourier transforms, layers and losses."""

from __future__ import annotations

from rlx.ops.vocabulary import table

MATRICES = table("""
mm bmm mv matvec vecmat batch_matmul smm spmm dsmm hspmm : g.matmul(a, b), or a @ b
multi_dot chain_matmul : a @ b @ c
ger : g.outer(a, b)
addmm baddbmm addmv sspaddmm saddmm : beta * bias + alpha * (a @ b), whose numbers are 1 where none are given
addr : x + g.outer(a, b)
addbmm : x + g.sum(a @ b, axis=0)
ragged_dot ragged_dot_general grouped_mm : g.grouped_matmul(x, w, indices)
scaled_mm scaled_matmul scaled_dot scaled_grouped_mm scaled_dot_general : g.matmul(a, b) * scale, or g.q_matmul(x, w)
einsum_path : g.einsum(subscripts, a, b), which orders them itself
dist : g.norm(a - b)
cdist : g.norm(g.expand_dims(a, -2) - g.expand_dims(b, -3), axis=-1)
pdist : g.pairwise_distance of pairs, or g.norm(g.expand_dims(a, -2) - g.expand_dims(a, -3), axis=-1)
vector_norm : g.norm(x, ord, axis), of several axes g.norm(g.flatten(x, start_axis), ord, axis=-1)
frobenius_norm : g.matrix_norm(x, 'fro')
nuclear_norm : g.matrix_norm(x, 'nuc')
renorm : x * g.minimum(maxnorm / g.norm(x, p, axis, keepdims=True), 1)
eig eigvals schur hessenberg symeig : g.eigh(a) of symmetric matrices
eigh_tridiagonal : g.eigh(a) of the whole matrix
lobpcg svd_lowrank pca_lowrank : g.eigh(a), g.svd(a)
expm : g.matrix_exp(a)
sqrtm funm : w, v = g.eigh(a); v @ (g.sqrt(w)[:, None] * v.mT) of symmetric matrices
logm : w, v = g.eigh(a); v @ (g.log(w)[:, None] * v.mT) of symmetric matrices
lu_factor lu_factor_ex lu_unpack ldl_factor ldl_factor_ex : g.lu(a)
lu_solve ldl_solve solve_ex custom_linear_solve : g.solve(a, b)
logdet : g.slogdet(a)[1]
inverse inv_ex : g.inv(a)
cholesky_inverse : g.inv(l @ l.mT)
cholesky_ex : g.cholesky(a)
pinverse : g.pinv(a)
orgqr householder ormqr qr_multiply geqrf : g.householder_product(a, factors), or q, r = g.qr(a)
cholesky_solve cho_solve cho_factor : g.solve(a, b), or g.cholesky(a) and g.triangular_solve(l, b)
solve_triangular : g.triangular_solve(a, b, lower=False), and lower=True of lower matrices
tensorsolve : g.reshape(g.solve(g.reshape(a, (n, n)), g.ravel(b)), shape)
tensorinv : g.reshape(g.inv(g.reshape(a, (n, n))), shape)
solve_sylvester : g.solve(g.kron(g.eye(m), a) + g.kron(b.T, g.eye(n)), g.ravel(q.T))
fft2 : g.fftn(x, axes=(-2, -1))
ifft2 : g.ifftn(x, axes=(-2, -1))
rfft2 rfftn : g.fftn(g.rfft(x), axes=(-2,)), the last axis first
irfft2 irfftn : g.irfft(g.ifftn(x, axes=(-2,)), length=n)
hfft hfft2 hfftn : g.irfft(g.conjugate(x), length=n) * n
ihfft ihfft2 ihfftn : g.conjugate(g.rfft(x)) / n
istft : g.irfft(frames, length=n), and g.index_add for the sum of what overlaps
convolve : g.conv(x[None, None], g.flip(g.constant(w))[None, None], padding=n - 1)[0, 0], with n weights; padding='same' \
and 0 for the modes 'same' and 'valid'
correlate : g.conv(x[None, None], w[None, None])
""")

LAYERS = table("""
dense bilinear : g.matmul(x, w) + b, g.einsum('bi,oij,bj->bo', x, w, y)
layernorm : g.layer_norm(x, scale, bias)
standardize : g.layer_norm(x, axis=-1, eps=1e-5)
rmsnorm : g.rms_norm(x)
groupnorm : g.group_norm(x)
lrn : g.local_response_norm(x, size)
l2_normalize lp_normalize : g.normalize(x)
norm_except_dim weight_norm spectral_norm : w / g.norm(w, axis=…, keepdims=True)
convolution conv_nd conv_general_dilated conv_with_general_padding : g.conv(x, w, stride=…, padding=…, dilation=…, groups=…)
conv_general_dilated_patches : g.unfold(x, kernel)
conv_general_dilated_local conv_tbc : g.einsum of g.unfold(x, kernel) and the weights
maxpool max_pool_2d : g.max_pool(x, kernel)
average_pool avgpool avg_pool_2d : g.avg_pool(x, kernel)
global_avg_pool global_average_pool : g.adaptive_avg_pool(x, size)
fractional_max_pool2d fractional_max_pool3d : g.adaptive_max_pool(x, size)
max_unpool1d max_unpool2d max_unpool3d : g.put_along_axis(g.zeros((n, c, size)), indices, g.reshape(x, (n, c, -1)), -1)
reduce_window : g.max_pool(x, kernel), g.sum_pool(x, kernel), g.avg_pool(x, kernel)
upsample upsample_nearest upsample_bilinear image_resize : g.resize(x, size=…)
grid_sampler grid_sampler_2d grid_sampler_3d : g.grid_sample(x, grid)
affine_grid_generator : g.affine_grid(theta, size)
depth_to_space : g.pixel_shuffle(x, upscale_factor)
space_to_depth : g.pixel_unshuffle(x, downscale_factor)
im2col : g.unfold(x, kernel)
col2im : g.fold(x, output_size, kernel)
dot_product_attention : g.swapaxes(g.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=…), 1, 2) of q, k and v as \
[B, N, T, H]: g.swapaxes(q, 1, 2)
multi_head_attention multihead_attention multi_head_attention_forward : g.attention(q, k, v, num_heads=…)
rnn rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell : g.scan(lambda h, x: …, h, xs), or g.lstm(…), g.gru(…)
lstm_cell : g.lstm(x, h, c, w_input, w_hidden, bias) of one step
depthwise_conv2d depthwise_conv1d depthwise_conv : g.conv(x, w, groups=channels)
rotary_embedding apply_rotary_emb : g.rope(x, cos, sin, head_dim)
zero_pad zero_pad2d : g.pad(x, padding)
gru_cell : g.gru(x, h, w_input, w_hidden, bias_input, bias_hidden) of one step
fake_quantize_per_tensor_affine fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant : g.fake_quantize(x)
quantize_per_tensor quantize_per_tensor_dynamic : g.quantize(x, scale, zero_point)
int_repr q_scale q_zero_point : g.quantize(x, scale, zero_point) is the integers, its arguments are the rest
""")

LOSSES = table("""
softmax_cross_entropy softmax_cross_entropy_with_integer_labels : g.cross_entropy(logits, target, reduction='none')
sparse_categorical_crossentropy linear_cross_entropy : g.cross_entropy(logits, target)
bce bce_loss : g.binary_cross_entropy(prediction, target)
bce_with_logits sigmoid_binary_cross_entropy sigmoid_cross_entropy : g.binary_cross_entropy_with_logits(logits, targets)
mse mean_squared_error : g.mse_loss(prediction, target)
squared_error : g.mse_loss(prediction, target, reduction='none')
l2_loss : g.mse_loss(prediction, target, reduction='none') / 2
mae mean_absolute_error : g.l1_loss(prediction, target)
absolute_error : g.l1_loss(prediction, target, reduction='none')
log_cosh : e = prediction - target; g.logaddexp(e, -e) - np.log(2)
cosine_distance : 1 - g.cosine_similarity(a, b, axis=-1)
kl_divergence kl_loss convex_kl_divergence : g.kl_div(log_probs, target)
poly_loss_cross_entropy : g.cross_entropy(logits, target, reduction='none') and what it adds
sigmoid_focal_loss focal_loss : e = g.cross_entropy(logits, target, reduction='none'); g.mean((1 - g.exp(-e)) ** 2 * e)
multi_margin_loss : g.mean(g.relu(margin - g.take_along_axis(x, target[:, None], 1) + x), axis=1) - margin / n
multilabel_margin_loss : g.relu(1 - (x of the labels - x of the others)), summed, by n
multilabel_soft_margin_loss : g.binary_cross_entropy_with_logits(logits, targets)
triplet_margin_with_distance_loss : g.mean(g.relu(distance(a, p) - distance(a, n) + margin))
adaptive_log_softmax_with_loss : g.cross_entropy(logits, target)
ctc_loss CTCLoss : a g.scan over the frames of the logits: there is no op for it
smooth_labels : (1 - alpha) * labels + alpha / n, or g.cross_entropy(logits, target, label_smoothing=alpha)
""")
