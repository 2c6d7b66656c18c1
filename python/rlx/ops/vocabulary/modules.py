"""Names of other libraries: layers and initialisers that `rlx.nn` and `rlx.nn.init` lack or name differently."""

from __future__ import annotations

from rlx.ops.vocabulary import table

LAYERS = table("""
MaxPool1d MaxPool2d MaxPool3d : a function in Sequential: lambda x: rlx.ops.max_pool(x, kernel, stride=None, padding=0)
AvgPool1d AvgPool2d AvgPool3d Pool : a function in Sequential: lambda x: rlx.ops.avg_pool(x, kernel, stride=None, padding=0)
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptivePool : lambda x: rlx.ops.adaptive_avg_pool(x, size)
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d : lambda x: rlx.ops.adaptive_max_pool(x, size)
FractionalMaxPool2d FractionalMaxPool3d : lambda x: rlx.ops.adaptive_max_pool(x, size)
LPPool1d LPPool2d LPPool3d : lambda x: rlx.ops.lp_pool(x, norm_type, kernel)
MaxUnpool1d MaxUnpool2d MaxUnpool3d : rlx.ops.put_along_axis(zeros, indices, x, -1) in a module
ReflectionPad1d ReflectionPad2d ReflectionPad3d : lambda x: rlx.ops.pad(x, [(0, 0), (0, 0), (1, 1)], mode='reflect')
ReplicationPad1d ReplicationPad2d ReplicationPad3d : lambda x: rlx.ops.pad(x, [(0, 0), (0, 0), (1, 1)], mode='edge')
CircularPad1d CircularPad2d CircularPad3d : lambda x: rlx.ops.pad(x, [(0, 0), (0, 0), (1, 1)], mode='wrap')
ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d : lambda x: rlx.ops.pad(x, pairs, value=0)
ModuleList ModuleDict List Dict : a Python list or dict as the attribute of a module
ParameterList ParameterDict : rlx.nn.Parameter as attributes of a module, or in a list or dict
Param UninitializedParameter Shared LoRAParam BatchStat EMA : rlx.nn.Parameter((3, 4))
UninitializedBuffer Variable StateIndex StatefulLayer Cache Intermediate : rlx.nn.Buffer((3, 4))
CrossEntropyLoss AdaptiveLogSoftmaxWithLoss LinearCrossEntropyLoss : rlx.ops.cross_entropy(logits, target)
MSELoss : rlx.ops.mse_loss(prediction, target)
L1Loss : rlx.ops.l1_loss(prediction, target)
SmoothL1Loss : rlx.ops.smooth_l1_loss(prediction, target)
HuberLoss : rlx.ops.huber_loss(prediction, target)
NLLLoss NLLLoss2d : rlx.ops.nll_loss(log_probs, target)
PoissonNLLLoss : rlx.ops.poisson_nll_loss(prediction, target)
GaussianNLLLoss : rlx.ops.gaussian_nll_loss(prediction, target, var)
KLDivLoss : rlx.ops.kl_div(log_probs, target)
BCELoss : rlx.ops.binary_cross_entropy(prediction, target)
BCEWithLogitsLoss MultiLabelSoftMarginLoss : rlx.ops.binary_cross_entropy_with_logits(logits, targets)
MarginRankingLoss : rlx.ops.margin_ranking_loss(first, second, target)
HingeEmbeddingLoss : rlx.ops.hinge_embedding_loss(prediction, target)
CosineEmbeddingLoss : rlx.ops.cosine_embedding_loss(first, second, target)
SoftMarginLoss MultiMarginLoss MultiLabelMarginLoss : rlx.ops.soft_margin_loss(prediction, target), or rlx.ops.hinge_loss
TripletMarginLoss TripletMarginWithDistanceLoss : rlx.ops.triplet_margin_loss(anchor, positive, negative)
CTCLoss : a rlx.ops.scan over the frames of the logits: there is no op for it
CosineSimilarity : rlx.ops.cosine_similarity(first, second, axis)
PairwiseDistance : rlx.ops.pairwise_distance(first, second)
MultiheadAttention Attention SelfAttention : rlx.nn.MultiHeadAttention(embed_dim, num_heads)
functional : import rlx.ops as F: F.relu(x), F.softmax(x, axis=-1), F.cross_entropy(logits, target) …
initializers : rlx.nn.init: rlx.nn.init.he_normal(), rlx.nn.init.truncated_normal(std=0.02) …
TransformerEncoderLayer TransformerEncoder Transformer TransformerDecoderLayer TransformerDecoder : the blocks of graphs \
at HIR, such as g.transformer_encoder_block, or rlx.nn.MultiHeadAttention in a module
RotaryPositionalEmbedding : rlx.ops.rope(x, cos, sin, head_dim) in a module
RNN RNNBase RNNCellBase Bidirectional SimpleCell : rlx.nn.GRU, rlx.nn.LSTM, or rlx.ops.scan in a module
LSTMCell GRUCell RNNCell OptimizedLSTMCell : rlx.nn.LSTM, rlx.nn.GRU of a sequence of one
PixelShuffle : lambda x: rlx.ops.pixel_shuffle(x, upscale_factor)
PixelUnshuffle : lambda x: rlx.ops.pixel_unshuffle(x, downscale_factor)
ChannelShuffle : lambda x: rlx.ops.channel_shuffle(x, groups)
Upsample UpsamplingNearest2d UpsamplingBilinear2d : lambda x: rlx.ops.resize(x, scale=(2.0, 2.0), mode='nearest'), or size=…
Fold : lambda x: rlx.ops.fold(x, output_size, kernel)
Unfold : lambda x: rlx.ops.unfold(x, kernel)
Dense LazyLinear LinearGeneral Einsum : rlx.nn.Linear(in_features, out_features)
LoRA LoRALinear : rlx.ops.lora_matmul(x, w, a, b) in a module
MLP : rlx.nn.Sequential(rlx.nn.Linear(4, 8), rlx.nn.ReLU(), rlx.nn.Linear(8, 2))
Embed EmbeddingBag : rlx.nn.Embedding(num_embeddings, embedding_dim)
LazyConv1d LazyConv2d LazyConv3d : rlx.nn.Conv2d(in_channels, out_channels, kernel_size), whose sizes are known
LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d : rlx.nn.ConvTranspose2d(in_channels, out_channels, kernel_size)
LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm : rlx.nn.BatchNorm(num_features)
InstanceNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d : lambda x: rlx.ops.instance_norm(x)
LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d : lambda x: rlx.ops.instance_norm(x)
LocalResponseNorm CrossMapLRN2d : lambda x: rlx.ops.local_response_norm(x, size)
WeightNorm SpectralNorm : the weight over its rlx.ops.norm in a module
Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout : rlx.nn.Dropout(rate)
LeakyReLU RReLU : lambda x: rlx.ops.leaky_relu(x, negative_slope)
PReLU : lambda x: rlx.ops.where(x > 0, x, slope * x) with a parameter
Threshold : lambda x: rlx.ops.where(x > threshold, x, value)
Hardshrink : lambda x: rlx.ops.where(rlx.ops.abs(x) > 0.5, x, 0)
Softshrink : lambda x: rlx.ops.sign(x) * rlx.ops.relu(rlx.ops.abs(x) - 0.5)
Tanhshrink : lambda x: x - rlx.ops.tanh(x)
Softmin : lambda x: rlx.ops.softmin(x, axis=-1)
Softmax2d : rlx.nn.Softmax(axis=1)
Softplus : rlx.nn.Activation('softplus'), or lambda x: rlx.ops.softplus(x)
Hardswish : lambda x: rlx.ops.hard_swish(x)
Hardsigmoid : lambda x: rlx.ops.hard_sigmoid(x)
Hardtanh : lambda x: rlx.ops.hard_tanh(x)
Softsign : lambda x: rlx.ops.soft_sign(x)
LogSigmoid : lambda x: rlx.ops.log_sigmoid(x)
LogSoftmax : lambda x: rlx.ops.log_softmax(x, axis=-1)
ELU : lambda x: rlx.ops.elu(x, alpha)
SELU : lambda x: rlx.ops.selu(x)
CELU : lambda x: rlx.ops.celu(x, alpha)
GLU : lambda x: rlx.ops.glu(x, axis=-1)
Mish : lambda x: rlx.ops.mish(x)
ReLU6 : lambda x: rlx.ops.relu6(x)
Lambda : any function in Sequential: lambda x: rlx.ops.exp(x)
Unflatten : lambda x: rlx.ops.reshape(x, shape)
Bilinear : rlx.ops.einsum in a module
Container Object Pytree Layer Model : a class of rlx.nn.Module with a forward
DataParallel : rlx.train.TrainStep(…).to_jax(), which JAX splits over devices
utils : rlx.train: TrainStep(clip_norm=1.0) …
Optimizer OptState ModelAndOptimizer TrainState : rlx.train.TrainStep(graph, rlx.train.Adam(1e-3))
Metric MultiMetric Accuracy Average : the outputs of a step: rlx.train.fit(step, batches, …) gives them
Rngs RngStream RngKey RngCount RngState : a seed: module.init(seed=0), module(x, seed=1)
State GraphDef GraphState split merge : module.init(seed=0) gives the parameters as a dict, module.apply(params, x) takes them
""")

INITIALISERS = table("""
xavier_uniform_ xavier_uniform : rlx.nn.init.glorot_uniform()
xavier_normal_ xavier_normal : rlx.nn.init.glorot_normal()
kaiming_uniform_ he_uniform : rlx.nn.init.kaiming_uniform()
kaiming_normal_ he_normal : rlx.nn.init.kaiming_normal()
lecun_uniform : rlx.nn.init.kaiming_uniform('linear')
lecun_normal : rlx.nn.init.kaiming_normal('linear')
variance_scaling : rlx.nn.init.kaiming_normal('linear', mode='fan_in'), or glorot_uniform(gain)
zeros_ : rlx.nn.init.zeros
ones_ : rlx.nn.init.ones
normal_ : rlx.nn.init.normal(std, mean)
uniform_ : rlx.nn.init.uniform(low, high)
orthogonal_ delta_orthogonal : rlx.nn.init.orthogonal(gain)
constant_ : rlx.nn.init.constant(value)
trunc_normal_ trunc_normal : rlx.nn.init.truncated_normal(std, mean, low, high)
eye eye_ dirac dirac_ sparse sparse_ : any function of a key and a shape: lambda key, shape: np.eye(*shape)
calculate_gain : the gain is a part of rlx.nn.init.kaiming_normal('relu'), and of glorot_normal(gain)
""")
