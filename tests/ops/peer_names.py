"""The names in the installed NumPy, JAX, PyTorch, Optax, Flax and Equinox that a user may type."""

from __future__ import annotations

import importlib
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import rlx

Is = Callable[[Any], bool]


def is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, (type, types.ModuleType))


def is_class(value: Any) -> bool:
    return isinstance(value, type)


# The objects that a user takes names from -> the modules or classes that provide the names.
SPACES: dict[str, tuple[tuple[str, Is], ...]] = {
    "graph": tuple(
        (name, is_function)
        for name in (
            *("numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.random:Generator"),
            *("jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.lax", "jax.nn", "jax.random"),
            *("jax.scipy.special", "jax.scipy.linalg"),
            *("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"),
        )
    ),
    "tensor": (("numpy:ndarray", bool), ("jax:Array", bool), ("torch:Tensor", bool)),
    "layers": (("torch.nn", is_class), ("flax.nnx", is_class), ("equinox.nn", is_class)),
    "initialisers": (("torch.nn.init", is_function), ("jax.nn.initializers", is_function)),
    "training": (("torch.optim", is_class), ("torch.optim.lr_scheduler", is_class), ("optax", callable)),
    "package": (("jax", callable), ("jax.tree", callable)),
    "module": (("torch.nn:Module", bool),),
    "optimiser": (("torch.optim:Adam", bool),),
}


def owner_of(space: str) -> Any:
    """Return the object that a user takes the names of a space from."""
    graph = rlx.Graph()
    owners: dict[str, Callable[[], Any]] = {
        "graph": lambda: graph,
        "tensor": lambda: graph.input("x", (2, 3, 4)),
        "layers": lambda: rlx.nn,
        "initialisers": lambda: rlx.nn.init,
        "training": lambda: rlx.train,
        "package": lambda: rlx,
        "module": lambda: rlx.nn.Linear(4, 5),
        "optimiser": lambda: rlx.train.Adam(1e-3),
    }
    return owners[space]()


def names_of(space: str) -> Iterator[tuple[str, str]]:
    """Yield each name with the module that has it; modules that are not installed have no names."""
    for home, is_meant in SPACES[space]:
        module, _, member = home.partition(":")
        try:
            place = importlib.import_module(module)
        except ImportError:
            continue
        place = getattr(place, member) if member else place
        for name in getattr(place, "__all__", None) or dir(place):
            with warnings.catch_warnings(action="ignore"):  # deprecated names
                if not name.startswith("_") and (bool(member) or is_meant(getattr(place, name, None))):
                    yield home, name


# Patterns of names without a meaning in RLX: switches of a library, files, strings, dates, internals of functions,
# storage, sparse tensors, and the types of library states. A new name of a peer that matches none of these fails a
# test.
WITHOUT_MEANING = (
    r".*(autocast|anomaly|deterministic|num_\w*threads|warn_always|flush_denormal|default_tensor_type).*",
    r"(get|set|is)_\w*(enabled|precision|err|errcall|bufsize|module|include|denormal|vulkan|debug_mode|available)",
    r"(geterr|seterr|geterrcall|seterrcall|getbufsize|setbufsize|show_\w+|info|test|nested_iters|iterable|isfortran)",
    r"(format_float_\w+|\w+_repr|fromregex|from_file|parse_\w+|import_ir_\w+|\w+_type_list|\w+_type_comment)",
    r"(is_?busday|busday_\w+|datetime_\w+|isnat)",
    r"(batch_norm_\w+|cudnn_\w+|miopen_\w+|mkldnn_\w+|fbgemm_\w+|\w+_copy|\w+_convolution_\w+|embedding_renorm_|hash_tensor)",
    r"(\w*has_torch_function\w*|handle_torch_function|boolean_dispatch|assert_int_or_pair|Optional|as_subclass|reinforce)",
    r"(sym_\w+|choose_qparams_optimized|q_per_channel_\w+|empty_quantized|slice_inverse|hsmm|thread_safe_generator)",
    r"(conv_\w+|\w+DimensionNumbers|PrecisionLike|padtype_to_pads|reduce_window_shape_tuple|shape_as_value|\w+_config)",
    r"(after_all|create_token|dce_sink|composite|platform_dependent|random_gamma_grad|expm_frechet|rsf2csf)",
    r"(shifted_chebyshev_\w+|is_storage|is_distributed|module_load|const_data_ptr|set_?field|volatile)",
    r"(\w+_indices|resize_as_sparse_|sparse_\w+|to_sparse_\w+|to_mkldnn|is_(ipu|maia|mkldnn|mtia|vulkan))",
    r"(global_shards|is_fully_addressable|unsafe_buffer_pointer|traceback|format)",
    r"(\w+State|\w+States|\w+Options|\w+Fn|\w+Context|\w+Info|\w+Params|Opt[A-Z]\w+|With[A-Z]\w+|\w+Metadata|State[A-Z]\w+)",
    r"(Carry|Everything|Not|Nothing|OfType|PathContains|Perturbation|Params|Updates|MaskOrFn|ApplyEvery|ScalarOrSchedule)",
    r"(GradientTransformationExtraArgs|set_graph_\w+|use_eager_sharding|T_destination|call_super_init|dump_patches)",
    r"(scale_by_\w+|scale_gradient|conditionally_\w+|safe_\w+|power_iteration|nnls|ntxent|monitor|measure_with_ema|multi_normal)",
    r"(ctc_loss_with_forward_probs|generalized_kl_divergence|init_empty_state|matrix_inverse_pth_root|periodic_update)",
    r"(stateless_with_tree_map|ShouldSkip\w+|Optimizer\w+Hook)",
    r"(\w*transfer_guard\w*|make_\w+|process_indices|host_\w+|\w+_ref|\w+_leaks|debug_\w+|default_prng_impl|legacy_prng_key)",
    r"(\w+_promotion|allow_f16_reductions|array_garbage_collection_guard|auto_pcast|effects_barrier|enable_custom_prng)",
    r"(ensure_compile_time_eval|explain_cache_misses|jax2tf_\w+|remove_size_one_mesh_axis_from_type|thread\w+|threefry_\w+)",
)
