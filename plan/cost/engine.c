#include "plan/cost/engine.h"

#define END \
	{ \
		.times = 0 \
	}

/* --- muster ------------------------------------------------------------------------
 * agent/engine/model/: a norm also adds the residual (reads x, r; writes sum, y). Its backward pass
 * also adds the gradient of the stream (reads dy, dres, x; writes dx). Biases are added in the
 * products; their gradients read dy again. */

static const struct cost_engine_pass muster[] = {
	{ PHASE_FORWARD, RATE_NORM_FWD, NEED_NOTHING, 2, { [TENSOR_STREAM] = 4 } },
	{ PHASE_FORWARD, RATE_NORM_FWD, NEED_QK_NORM, 1, { [TENSOR_ROTATED] = 6 } },
	{ PHASE_FORWARD, RATE_ROPE, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	{ PHASE_FORWARD, RATE_GELU_FWD, NEED_GELU, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_FORWARD, RATE_SWIGLU_FWD, NEED_SWIGLU, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_ROUTED] = 2 } },
	{ PHASE_BACKWARD, RATE_NORM_BWD, NEED_NOTHING, 2, { [TENSOR_STREAM] = 4 } },
	{ PHASE_BACKWARD, RATE_ROPE, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	{ PHASE_BACKWARD, RATE_NORM_BWD, NEED_QK_NORM, 1, { [TENSOR_ROTATED] = 7 } },
	{ PHASE_BACKWARD, RATE_GELU_BWD, NEED_GELU, 1, { [TENSOR_UP] = 2, [TENSOR_ACT] = 1 } },
	{ PHASE_BACKWARD, RATE_SWIGLU_BWD, NEED_SWIGLU, 1, { [TENSOR_UP] = 2, [TENSOR_ACT] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 2 } },
	{ PHASE_BACKWARD, RATE_SUM_ROWS, NEED_BIAS_SUMS, 2, { [TENSOR_ROWS] = 1 } },
	{ PHASE_BACKWARD, RATE_SUM_ROWS, NEED_QKV_BIAS_SUMS, 1, { [TENSOR_QKV] = 1 } },
	{ PHASE_BACKWARD, RATE_SUM_ROWS, NEED_BIAS_SUMS, 1, { [TENSOR_UP] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 4, { [TENSOR_ROUTED] = 2 } },
	{ PHASE_AGAIN, RATE_NORM_FWD, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },
	{ PHASE_AGAIN, RATE_GELU_FWD, NEED_GELU, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_AGAIN, RATE_SWIGLU_FWD, NEED_SWIGLU, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	END
};

/* agent/engine/model/linear_fp8.h. A cast writes two copies of a byte each. With current scaling the
 * norm, the activation and their gradients find the largest number, and a cast reads their result (2
 * bytes). Other tensors are read twice. With delayed scaling these ops write the copies in place of
 * 2 bytes of their result; a norm reads its input again, and its gradient is stored too. One cast reads
 * each other tensor. Attention's output and gathered inputs have no transposed copy: they are cast
 * again in the backward pass. The op that casts a gradient also sums its columns, for a bias's
 * gradient. */
static const struct engine_casts muster_casts[] = {
	[FP8_SCALING_CURRENT] = {
		.input = { [LINEAR_QKV] = 4, [LINEAR_OUT] = 5, [LINEAR_UP] = 4, [LINEAR_DOWN] = 4 },
		.gradient = { [LINEAR_QKV] = 6, [LINEAR_OUT] = 4, [LINEAR_UP] = 4, [LINEAR_DOWN] = 4 },
		.gathered = 5, .again = 3, .changed = 2, .weights = 6, .weights_pass = 5,
	},
	[FP8_SCALING_DELAYED] = {
		.input = { [LINEAR_QKV] = 2, [LINEAR_OUT] = 3, [LINEAR_UP] = 2, [LINEAR_DOWN] = 0 },
		.gradient = { [LINEAR_QKV] = 4, [LINEAR_OUT] = 2, [LINEAR_UP] = 0, [LINEAR_DOWN] = 2 },
		.gathered = 3, .again = 3, .changed = 2, .weights = 6, .weights_pass = 5,
	},
};

const struct cost_engine cost_engine_muster = {
	.name = "muster",
	.passes = muster,
	.attention = ATTENTION_MUSTER,
	.hides_tp = true,
	.own_rows_first = true,
	.splits_backward = true,
	.stops_short = true,
	.hides_dp = true,
	.gathers_ahead = true,
	.casts = muster_casts,
	.casts_once = true,
	.embed_fwd = 2,
	.embed_bwd = 3,
	.grad_width = 4,
};

/* --- Megatron-LM -------------------------------------------------------------------
 * github.com/NVIDIA/Megatron-LM, megatron/model/transformer.py and fused_*.py, as of April 2021
 * (8cfef1bf) and May 2022 (32132c6e). Forward:
 *   - Scores, softmax and dropped weights of the whole square are stored. Scale, mask and softmax
 *     are one kernel; dropout is another one and stores a byte of mask for each element.
 *   - Bias, dropout and residual sum are one kernel, bias and GELU another.
 *   - The query-key-value bias is a pass of its own.
 *   - Heads are copied into the order of the projection.
 * Backward, besides the same operations reversed:
 *   - Each bias's gradient reads what it sums.
 *   - The residual's gradient is added in a pass of its own.
 *   - The gradients of LayerNorm's weights read both inputs again. */

/* clang-format off */
static const struct cost_engine_pass megatron[] = {
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },           /* LayerNorm */
	{ PHASE_FORWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 3.5 } },         /* bias, dropout, residual */
	{ PHASE_FORWARD, RATE_MOVED, NEED_NO_DROPOUT, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_QKV] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_HEADS] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_SCORES] = 2 } },           /* softmax */
	{ PHASE_FORWARD, RATE_MOVED, NEED_ATTN_DROPOUT, 1, { [TENSOR_SCORES] = 2.5 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 2.5 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_BIAS, 2, { [TENSOR_STREAM] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },          /* residual */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },          /* LayerNorm: input, */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },          /* weights */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_UP] = 2, [TENSOR_ACT] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_BIAS, 1, { [TENSOR_UP] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_QKV] = 2 } },             /* three gradients become one */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_QKV_BIAS, 1, { [TENSOR_QKV] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_HEADS] = 2 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_ATTN_DROPOUT, 1, { [TENSOR_SCORES] = 2.5 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_SCORES] = 3 } },          /* softmax */
	{ PHASE_AGAIN, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_SCORES] = 2 } },
	{ PHASE_AGAIN, RATE_MOVED, NEED_ATTN_DROPOUT, 1, { [TENSOR_SCORES] = 2.5 } },
	END
};
/* clang-format on */

/* fp16 gradients are added up in fp16 by a pass of their own (reads two, writes one: 6 bytes). They
 * are all-reduced over the replicas in fp16: after the step (--DDP-impl local), but with torch's
 * DDP behind the backward pass if there is no pipeline (examples/sc21/run_table_1.sh).
 * Loss: fp16 logits become fp32, then maximum, difference, exp, sum, quotient, gradient and its
 * rounding, each a pass: 52 bytes.
 * Update (megatron/optimizer): mean over replicas 4, copy to fp32 6, unscale and check 8, norm 4,
 * Adam 28, copy to fp16 6.
 * Between stages: batch_isend_irecv, then torch.cuda.synchronize (p2p_communication.py). */
#define MEGATRON \
	.passes = megatron, .waits = true, .scatters = true, .accumulate = 6, .embed_fwd = 4, \
	.embed_bwd = 4, .loss = 52, .grad_width = 2, .update = 56

const struct cost_engine cost_engine_megatron_2021 = { .name = "Megatron-LM of April 2021",
						       MEGATRON };
/* Since September 2021 (b462d254) the backward pass's all-reduces over tp ranks run beside the
 * products of the weights' gradients. */
const struct cost_engine cost_engine_megatron_2022 = { .name = "Megatron-LM of May 2022",
						       .hides_tp = true,
						       MEGATRON };

/* --- Megatron-Core -----------------------------------------------------------------
 * Release 0.8 on H100s, with --overlap-grad-reduce, --overlap-param-gather and --tp-comm-overlap
 * (its README), and Transformer Engine's layers: fused attention, biases in the products, one
 * kernel for a norm's backward pass. Elements are bf16; the products add up fp32 gradients.
 * Messages between stages travel beside the passes. The loss is as above, but its fp32 gradient is
 * not rounded. */

static const struct cost_engine_pass core[] = {
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 3.5 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NO_DROPOUT, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	/* Rows in the order of the ranks, received rows in that of the rank's experts, and back. */
	{ PHASE_FORWARD,
	  RATE_MOVED,
	  NEED_NOTHING,
	  2,
	  { [TENSOR_ROUTED] = 2, [TENSOR_SORTED] = 2 } },
	{ PHASE_BACKWARD,
	  RATE_MOVED,
	  NEED_NOTHING,
	  3,
	  { [TENSOR_ROUTED] = 2, [TENSOR_SORTED] = 2 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_DROPOUT, 2, { [TENSOR_STREAM] = 2.5 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_UP] = 2, [TENSOR_ACT] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_BIAS, 2, { [TENSOR_STREAM] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_QKV_BIAS, 1, { [TENSOR_QKV] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_BIAS, 1, { [TENSOR_UP] = 1 } },
	END
};

/* Since June 2026 on Blackwell (container 26.06 of Megatron-Bridge): the experts' products,
 * casts and activations are one kernel, rows arrive in the order of the experts, a step is one
 * CUDA graph, and the all-to-alls run beside another micro-batch. */
static const struct cost_engine_pass core_2026[] = {
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_ROUTED] = 2 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 3, { [TENSOR_ROUTED] = 2 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 4, { [TENSOR_STREAM] = 3 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 2 } },
	END
};

/* Gradients travel in bf16: grad_sync_dtype of NeMo's .yaml, grad_reduce_in_fp32 = False of
 * Megatron-Bridge's perf_recipes. Transformer Engine casts an input before it gathers it
 * (transformer_engine/pytorch/module/linear.py), and the recipes set fp8_param_gather.
 * The time to sort and pad the rows of experts (routing), and that to start a layer's kernels one
 * after the other (starts), are fitted to every second published row of mixtures. */
#define MEGATRON_CORE \
	.hides_tp = true, .own_rows_first = true, .hides_dp = true, .gathers_ahead = true, \
	.routes_own = true, .cast = 2, .eight_experts = true, .gathers_eight = true, \
	.shards_eight = true, .embed_fwd = 4, .embed_bwd = 4, .loss = 46, .grad_width = 2, \
	.update = 38
#define ROUTING 0.3e-3
#define STARTS  4.4e-3

const struct cost_engine cost_engine_megatron_core = { .name = "Megatron-Core",
						       .passes = core,
						       .attention = ATTENTION_CUDNN,
						       .routes_once = true,
						       .routing = ROUTING,
						       .starts = STARTS,
						       MEGATRON_CORE };
static const struct cost_engine megatron_core_graphs = { .name = "Megatron-Core with CUDA graphs",
							 .passes = core,
							 .attention = ATTENTION_CUDNN,
							 .routes_once = true,
							 .routing = ROUTING,
							 MEGATRON_CORE };
static const struct cost_engine megatron_core_2026 = { .name = "Megatron-Core of June 2026",
						       .passes = core_2026,
						       .attention = ATTENTION_CUDNN,
						       .routes_once = true,
						       .hides_ep = true,
						       .routing = 0.15e-3,
						       MEGATRON_CORE };
static const struct cost_engine megatron_core_2024 = { .name = "Megatron-Core 0.8",
						       .passes = core,
						       .attention = ATTENTION_FLASH2,
						       .routing = ROUTING,
						       .starts = STARTS,
						       MEGATRON_CORE };

/* --- PyTorch's FSDP ----------------------------------------------------------------
 * The passes are those that PyTorch makes without a compiler; with one they are fused as muster's
 * are. Fitted to every second published row (tests/unit/plan/rows): the share of time in which an
 * uncompiled program computes and what its collectives hide (busy, hides), and how much longer
 * attention takes on a ring (ring). torch.utils.checkpoint recomputes until the last saved tensor is there
 * (set_checkpoint_early_stop): stops_short. */

/* clang-format off */
static const struct cost_engine_pass eager[] = {
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 2 } },           /* norm */
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },           /* residual */
	{ PHASE_FORWARD, RATE_MOVED, NEED_GELU, 1, { [TENSOR_UP] = 1, [TENSOR_ACT] = 1 } },
	{ PHASE_FORWARD, RATE_MOVED, NEED_SWIGLU, 1, { [TENSOR_ACT] = 5 } },               /* SiLU, product */
	{ PHASE_FORWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 10 } },            /* in fp32 */
	{ PHASE_FORWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_QKV] = 2 } },              /* heads in order */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 5 } },          /* norm: input, weights */
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 2, { [TENSOR_STREAM] = 3 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_GELU, 1, { [TENSOR_UP] = 2, [TENSOR_ACT] = 1 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_SWIGLU, 1, { [TENSOR_ACT] = 9 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_ROPE, 1, { [TENSOR_ROTATED] = 10 } },
	{ PHASE_BACKWARD, RATE_MOVED, NEED_NOTHING, 1, { [TENSOR_QKV] = 2 } },
	END
};
/* clang-format on */

#define FSDP \
	.splits_backward = true, .stops_short = true, .hides_dp = true, .ring = 1.2, \
	.embed_fwd = 2, .embed_bwd = 3, .grad_width = 2, .eight_experts = true, .update = 44

static const struct cost_engine fsdp_eager = { .name = "PyTorch FSDP",
					       .attention = ATTENTION_FLASH1,
					       .passes = eager,
					       .busy = 0.94,
					       .hides = 0.3,
					       .loss = 34,
					       .cast = 4,
					       FSDP };
static const struct cost_engine fsdp_compiled = { .name = "PyTorch FSDP with torch.compile",
						  .attention = ATTENTION_FLASH2,
						  .passes = muster,
						  .loss = 24,
						  .cast = 3,
						  FSDP };
static const struct cost_engine fsdp_async_tp = { .name = "PyTorch FSDP with asynchronous TP",
						  .passes = muster,
						  .hides_tp = true,
						  .own_rows_first = true,
						  .attention = ATTENTION_FLASH2,
						  .loss = 24,
						  .cast = 3,
						  FSDP };

/* --- DeepSpeed ---------------------------------------------------------------------
 * ZeRO-3 of 2021 gathers parameter by parameter. Its published steps take as long as one adapter of a
 * node needs, however many nodes there are; its share of the adapter's rate and what it hides are
 * fitted to them. */
static const struct cost_engine deepspeed = {
	.name = "DeepSpeed of 2021", .hides_dp = true, .one_rail = 0.9, .hides = 0.65, MEGATRON
};

const struct cost_engine *const cost_engines[JOB_ENGINES] = {
	[ENGINE_MUSTER] = &cost_engine_muster,
	[ENGINE_MEGATRON_CORE] = &cost_engine_megatron_core,
	[ENGINE_MEGATRON_CORE_GRAPHS] = &megatron_core_graphs,
	[ENGINE_MEGATRON_CORE_2026] = &megatron_core_2026,
	[ENGINE_MEGATRON_CORE_2024] = &megatron_core_2024,
	[ENGINE_MEGATRON_2021] = &cost_engine_megatron_2021,
	[ENGINE_MEGATRON_2022] = &cost_engine_megatron_2022,
	[ENGINE_FSDP_EAGER] = &fsdp_eager,
	[ENGINE_FSDP_COMPILED] = &fsdp_compiled,
	[ENGINE_FSDP_ASYNC_TP] = &fsdp_async_tp,
	[ENGINE_DEEPSPEED] = &deepspeed,
};
