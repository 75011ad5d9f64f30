/*
 * ops_table — the operations of a Transformer, one row each.
 *
 *     OP(name, operands, form, parameters)
 *
 * operands   STORED: some operands have the backend's storage type (fp32, bf16 or fp16).
 *            FP32:   none has it, so that the fp32 form serves every storage type.
 * form       OWN:      each backend has its own form.
 *            HOST:     host backends share backend_host_<name>; a device has its own form.
 *            COMPOSED: backend_composed_<name> calls other ops. A backend may have a faster form.
 *
 * A file defines OP and includes this one as often as it needs: struct ops, the names, the shared
 * forms and the check for missing ops come from here (kernels/ops.h, backend.h, ops.c), and
 * tests/conform/test_ops.c fails for a row that it does not test. Therefore there is no include
 * guard.
 *
 * To add an op:
 *   1. Add its row here. The comment gives the shapes, and what the op sets or adds to.
 *   2. Add its reference form to a file of kernels/reference/, and enter it at the end of that
 *      file.
 *   3. Add its form for processors: either COMPOSED, in kernels/composed.c, or OWN, in
 *      kernels/cpu/.
 *   4. Add its arguments, its call and its sizes to a file tests/conform/op_*.c.
 * A COMPOSED op is complete now. Any backend can get a faster form later. An OWN op needs two forms
 * more, and no backend opens without them: one in kernels/low_precision/ where the operands are
 * STORED, and one in kernels/cuda/ (cuda.h has the recipe). To measure it, add a row to
 * agent/tools/bench_ops.c (processors) or tests/gpu/kernel_rows.c (GPUs).
 */
/* clang-format off */

/* --- Matrix products ---------------------------------------------------------------------- */

/* y[n,out] = x[n,in] · w[out,in]ᵀ + bias[out]. bias may be NULL. Sets y. */
OP(linear_fwd, STORED, OWN, (struct backend *k, void *y, const void *x, const void *w,
	const void *bias, int64_t n, int64_t in, int64_t out))
/* dx[n,in] = dy[n,out] · w[out,in]. Sets dx. dx may be NULL: then nothing is done. */
OP(linear_bwd_input, STORED, OWN, (struct backend *k, void *dx, const void *dy, const void *w,
	int64_t n, int64_t in, int64_t out))
/* Sets dw[out,in] to dyᵀ · x, and dbias[out] to the column sums of dy; with `add`, adds to them.
 * dbias may be NULL. What is set is not read before. This holds for `add` of each op. */
OP(linear_bwd_weight, STORED, OWN, (struct backend *k, float *dw, float *dbias, const void *dy,
	const void *x, int64_t n, int64_t in, int64_t out, bool add))
/* linear_bwd_weight without a bias, where row i of dy begins at element i * row, row >= out. The
 * elements between the rows are not read. */
OP(linear_bwd_weight_strided, STORED, OWN, (struct backend *k, float *dw, const void *dy, int64_t row,
	const void *x, int64_t n, int64_t in, int64_t out, bool add))

/* A product followed by GELU: pre[n,out] = x · wᵀ + bias, y = gelu(pre). bias may be NULL. Sets
 * both. */
OP(linear_gelu_fwd, STORED, COMPOSED, (struct backend *k, void *y, void *pre, const void *x,
	const void *w, const void *bias, int64_t n, int64_t in, int64_t out))
/* GELU followed by a product, backward: dpre[n,in] = (dy[n,out] · w[out,in]) * gelu'(pre[n,in]).
 * Sets dpre. */
OP(linear_gelu_bwd, STORED, COMPOSED, (struct backend *k, void *dpre, const void *dy, const void *w,
	const void *pre, int64_t n, int64_t in, int64_t out))

/* Grouped products: linear_fwd, linear_bwd_input and linear_bwd_weight of each group. Group i
 * has rows[i] rows of x and y, after those of group i - 1; its weights begin at element i *
 * stride of w and of dw. A group without rows has no y and dx; its dw is 0, unless `add`. rows
 * is in host memory if `most` is 0. Otherwise it is in the backend's memory, and its sum is at
 * most `most`: see backend_counts_groups. */
OP(grouped_fwd, STORED, COMPOSED, (struct backend *k, void *y, const void *x, const void *w,
	int64_t stride, const int64_t *rows, int64_t most, int groups, int64_t in, int64_t out))
OP(grouped_bwd_input, STORED, COMPOSED, (struct backend *k, void *dx, const void *dy, const void *w,
	int64_t stride, const int64_t *rows, int64_t most, int groups, int64_t in, int64_t out))
OP(grouped_bwd_weight, STORED, COMPOSED, (struct backend *k, float *dw, int64_t stride,
	const void *dy, const void *x, const int64_t *rows, int64_t most, int groups, int64_t in,
	int64_t out, bool add))

/* --- fp8 products ------------------------------------------------------------------------- */

/* to->at[n,c] = fp8(scale x[n,c]), and to->transposed[c,r] is its transpose, with r the next multiple
 * of FP8_ROW from n on, and zeros in the last columns. Sets those that are not NULL. to->sums: as
 * sum_rows. to->scale->largest becomes the largest |x| if that is larger. */
OP(fp8_cast, STORED, HOST, (struct backend *k, const void *x, int64_t n, int64_t c,
	const struct fp8_copies *to))
/* Current scaling: sets `scale` and `inverse` of to->scale to the largest power of 2 with which its
 * `largest` fits the format, or both to 0 if that is 0 or not finite. Then does what fp8_cast does,
 * but changes nothing else of the scale. */
OP(fp8_cast_current, STORED, HOST, (struct backend *k, const void *x, int64_t n, int64_t c,
	const struct fp8_copies *to))
/* d[m,n] = left[m,depth] · right[n,depth]ᵀ + bias[n], summed in fp32. bias may be NULL. Sets d.
 * With `single`, d is fp32, is added to if `add`, and there is no bias. At most one of left and
 * right is e5m2. left->fast permits tensor cores to keep fewer bits of the sums. With transposed
 * copies this is linear_fwd (x, w), linear_bwd_input (dy, wᵀ) and
 * linear_bwd_weight (dyᵀ, xᵀ; single). */
OP(fp8_product, STORED, HOST, (struct backend *k, void *d, const struct fp8_tensor *left,
	const struct fp8_tensor *right, const void *bias, bool single, bool add, int64_t m,
	int64_t n, int64_t depth))
/* Delayed scaling: updates n scales. Each becomes the largest power of 2 with which the largest
 * finite |x| of its history fits `format`, or 1 if that is 0. With `ends`, a step has ended:
 * s->largest enters the history before, or 0 if it is not finite, because a checkpoint with numbers
 * that are not finite is never committed; s->largest becomes 0. */
OP(fp8_update_scales, FP32, HOST, (struct backend *k, struct fp8_scale *s, int64_t n,
	enum fp8 format, bool ends))

/* The op without `_cast`, and then fp8_cast of the tensor that it sets (y, dx or dgu), without
 * another pass over it. Without copies it only finds the largest number. Only the gradients, which
 * are the results of `_bwd`, have to->sums. gelu's n rows of c elements are one array to the op
 * itself. */
OP(layernorm_fwd_cast, STORED, COMPOSED, (struct backend *k, void *y, void *sum, float *mean,
	float *rstd, const void *x, const void *r, const void *w, const void *bias, int64_t n,
	int64_t c, float eps, const struct fp8_copies *to))
OP(rmsnorm_fwd_cast, STORED, COMPOSED, (struct backend *k, void *y, void *sum, float *rstd,
	const void *x, const void *r, const void *w, int64_t n, int64_t c, float eps,
	const struct fp8_copies *to))
OP(layernorm_bwd_cast, STORED, COMPOSED, (struct backend *k, void *dx, float *dw, float *dbias,
	const void *dy, const void *dres, const void *x, const float *mean, const float *rstd,
	const void *w, int64_t n, int64_t c, bool add, const struct fp8_copies *to))
OP(rmsnorm_bwd_cast, STORED, COMPOSED, (struct backend *k, void *dx, float *dw, const void *dy,
	const void *dres, const void *x, const float *rstd, const void *w, int64_t n, int64_t c,
	bool add, const struct fp8_copies *to))
OP(gelu_fwd_cast, STORED, COMPOSED, (struct backend *k, void *y, const void *x, int64_t n, int64_t c,
	const struct fp8_copies *to))
OP(gelu_bwd_cast, STORED, COMPOSED, (struct backend *k, void *dx, const void *dy, const void *x,
	int64_t n, int64_t c, const struct fp8_copies *to))
OP(swiglu_fwd_cast, STORED, COMPOSED, (struct backend *k, void *y, const void *gu, int64_t n,
	int64_t f, const struct fp8_copies *to))
OP(swiglu_bwd_cast, STORED, COMPOSED, (struct backend *k, void *dgu, const void *dy, const void *gu,
	int64_t n, int64_t f, const struct fp8_copies *to))

/* --- Norms -------------------------------------------------------------------------------- */

/* If r is not NULL, sum = x + r is the input, and sum must not be NULL; sum may be x. Otherwise x
 * is the input. y = (input - mean) * rstd * w + bias, rstd = 1/sqrt(variance + eps). Sets y, sum,
 * and mean[n] and rstd[n], which the backward pass reads. */
OP(layernorm_fwd, STORED, OWN, (struct backend *k, void *y, void *sum, float *mean, float *rstd,
	const void *x, const void *r, const void *w, const void *bias, int64_t n, int64_t c, float eps))
/* dx = gradient through the norm + dres. dres may be NULL, and may be dx. x is the norm's input
 * (sum). Sets dx, dw and dbias; with `add`, adds to dw and dbias. */
OP(layernorm_bwd, STORED, OWN, (struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
	const void *dres, const void *x, const float *mean, const float *rstd, const void *w,
	int64_t n, int64_t c, bool add))
/* As layernorm_fwd and layernorm_bwd with y = input * rstd * w, rstd = 1/sqrt(mean(input²) +
 * eps). */
OP(rmsnorm_fwd, STORED, OWN, (struct backend *k, void *y, void *sum, float *rstd, const void *x,
	const void *r, const void *w, int64_t n, int64_t c, float eps))
OP(rmsnorm_bwd, STORED, OWN, (struct backend *k, void *dx, float *dw, const void *dy, const void *dres,
	const void *x, const float *rstd, const void *w, int64_t n, int64_t c, bool add))

/* --- Activations -------------------------------------------------------------------------- */

/* GELU by the tanh formula, as in GPT-2. Sets y, which may be x. */
OP(gelu_fwd, STORED, OWN, (struct backend *k, void *y, const void *x, int64_t count))
/* dx = dy * gelu'(x). Sets dx, which may be dy. */
OP(gelu_bwd, STORED, OWN, (struct backend *k, void *dx, const void *dy, const void *x, int64_t count))
/* Each row of gu[n,2f] holds the gate, then up. y[n,f] = silu(gate) * up. Sets y. */
OP(swiglu_fwd, STORED, OWN, (struct backend *k, void *y, const void *gu, int64_t n, int64_t f))
/* Sets dgu[n,2f]. */
OP(swiglu_bwd, STORED, OWN, (struct backend *k, void *dgu, const void *dy, const void *gu, int64_t n,
	int64_t f))

/* --- Attention ---------------------------------------------------------------------------- */

/* Rotates in place the pairs (i, i + dim/2) of each head by the angle whose cosine and sine are in
 * the tables cos[seq,dim/2] and sin[seq,dim/2]. rope_bwd rotates back. */
OP(rope_fwd, STORED, OWN, (struct backend *k, void *x, const struct rope_shape *s, const float *cos,
	const float *sin))
OP(rope_bwd, STORED, OWN, (struct backend *k, void *dx, const struct rope_shape *s, const float *cos,
	const float *sin))

/* Sets o[batch,q_len,heads*dim] and lse[batch,heads,q_len], the log-sum-exp of the scaled scores.
 * For a query that sees no key, lse is -INFINITY and o is 0. No array of q_len × k_len is
 * stored. */
OP(attention_fwd, STORED, OWN, (struct backend *k, void *o, float *lse, const void *q,
	const void *key, const void *v, const struct attn_shape *s))
/* Joins two results over different keys by their log-sum-exps (Liu, Zaharia, Abbeel, arXiv
 * 2310.01889): o and lse become those over both. o and o2 have the same layout (o_batch). */
OP(attention_merge, STORED, OWN, (struct backend *k, void *o, float *lse, const void *o2,
	const float *lse2, const struct attn_shape *s))
/* o and lse are those over all keys, after merging. Sets dq, dk and dv (0 where nothing is seen);
 * with `add`, adds to them. */
OP(attention_bwd, STORED, OWN, (struct backend *k, void *dq, void *dk, void *dv, const void *dout,
	const void *o, const float *lse, const void *q, const void *key, const void *v,
	const struct attn_shape *s, bool add))

/* --- Embeddings and dropout --------------------------------------------------------------- */

/* y[n,c] = wte[token - lo] for tokens in [lo, hi), otherwise 0. If wpe is not NULL,
 * wpe[positions[i]] is added. Sets y. */
OP(embed_fwd, STORED, OWN, (struct backend *k, void *y, const int32_t *tokens,
	const int32_t *positions, const void *wte, const void *wpe, int64_t n, int64_t c, int32_t lo,
	int32_t hi))
/* Adds to dwte[hi-lo,c] and dwpe[positions,c]; dwpe may be NULL. Any number of threads gives the
 * same bits. */
OP(embed_bwd, STORED, OWN, (struct backend *k, float *dwte, float *dwpe, const void *dy,
	const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c, int32_t lo, int32_t hi))

/* y[i,c] = x[i,c] with dropout. Row i is row rows[i] of the global tensor [., c], whose element
 * numbers decide which elements are dropped. Sets y, which may be x. The backward pass is the same
 * op. */
OP(dropout, STORED, OWN, (struct backend *k, void *y, const void *x, const int64_t *rows, int64_t n,
	int64_t c, const struct dropout *d))

/* --- Mixture of experts. The router's logits[n,e] are fp32. ------------------------------- */

/* probs[n,e] = softmax(logits). chosen[n,top]: the experts with the largest logits, in falling
 * order; among equals, the lower index first. weights[n,top]: with `before`, the probs of the
 * chosen; otherwise the softmax over the chosen logits. lse[n]: log-sum-exp of the logits. Sets
 * all. */
OP(route_fwd, FP32, OWN, (struct backend *k, int32_t *chosen, float *weights, float *probs,
	float *lse, const float *logits, int64_t n, int64_t e, int64_t top, bool before))
/* Sets dlogits[n,e] to the sum of: the gradient through dweights[n,top]; scale[0] aux * load[j] *
 * d(sum over tokens of probs[., j]), where load[e] may be NULL; and scale[0] z * 2 lse[i] probs[i,.],
 * of the z-loss (sum over tokens of lse²). */
OP(route_bwd, FP32, OWN, (struct backend *k, float *dlogits, const float *dweights,
	const int32_t *chosen, const float *weights, const float *probs, const float *lse,
	const float *load, float aux, float z, const float *scale, int64_t n, int64_t e, int64_t top,
	bool before))
/* Sets choices[pieces,e]: how often the tokens of each piece chose each expert. A piece has
 * `length` of the n tokens. */
OP(route_count, FP32, HOST, (struct backend *k, int64_t *choices, const int32_t *chosen, int64_t n,
	int64_t e, int64_t top, int64_t length))
/* load[count] = choices[count] / all. Sets load. */
OP(route_load, FP32, OWN, (struct backend *k, float *load, const int64_t *choices, int64_t count,
	int64_t all))
/* Sets at[n,top]: 0 for a choice that is kept, -1 for one beyond the first `most` choices of its
 * expert in its piece, in order of tokens. before[pieces,e] is how many choices count as made
 * already; it may be NULL. */
OP(route_drop, FP32, HOST, (struct backend *k, int64_t *at, const int32_t *chosen,
	const int64_t *before, int64_t n, int64_t e, int64_t top, int64_t length, int64_t most))
/* Orders the kept choices by expert, then by token. Sets counts[e], the choices kept; at[n,top],
 * the row of each choice (a negative entry stays); and from[row], the token of each row that
 * exists. block = 0: the rows follow each other. Otherwise each expert has a block of so many rows,
 * at least its count; also sets from to -1 for the rows of from[e,block] that have no choice. */
OP(route_place, FP32, HOST, (struct backend *k, int64_t *counts, int64_t *at, int64_t *from,
	const int32_t *chosen, int64_t n, int64_t e, int64_t top, int64_t block))
/* Orders the rows of blocks [ranks,e,block] by expert, then by rank. counts[ranks,e]: rows in each
 * block, its first ones; more than `block` count as so many. Sets rows[e], the rows of each expert;
 * order[ranks,e,block], the place in the blocks of each row in this order, then -1; and
 * back[ranks,e,block], its inverse, -1 for a place without a row. */
OP(route_blocks, FP32, HOST, (struct backend *k, int64_t *rows, int64_t *order, int64_t *back,
	const int64_t *counts, int64_t ranks, int64_t e, int64_t block))
/* *loss += aux * sum over t, x of load[t / seq, x] probs[t,x] + z * sum over t of lse[t]², in
 * double. */
OP(route_loss, FP32, OWN, (struct backend *k, double *loss, const float *load, const float *probs,
	const float *lse, int64_t n, int64_t e, int64_t seq, double aux, double z))
/* y[i] = x[from[i]] for n rows of c elements; zeros where from[i] < 0. Sets y. */
OP(gather_rows, STORED, OWN, (struct backend *k, void *y, const void *x, const int64_t *from,
	int64_t n, int64_t c))
/* y[i y_row + j] = x[i x_row + j] for n rows i and c columns j. Sets that block of y. */
OP(copy_rows, STORED, OWN, (struct backend *k, void *y, int64_t y_row, const void *x, int64_t x_row,
	int64_t n, int64_t c))
/* y[i] = sum over the `top` j of weights[i,j] * x[at[i,j]]. at < 0 counts as zero: that choice was
 * dropped. weights may be NULL: all are 1. Sets y. */
OP(combine_fwd, STORED, OWN, (struct backend *k, void *y, const void *x, const int64_t *at,
	const float *weights, int64_t n, int64_t top, int64_t c))
/* dx[at[i,j]] = weights[i,j] * dy[i]. Each row of dx occurs at most once; the other rows stay.
 * dweights[i,j] = dy[i] · x[at[i,j]], and 0 for a dropped choice. dweights may be NULL, and then x
 * too. weights may be NULL: all are 1. */
OP(combine_bwd, STORED, OWN, (struct backend *k, void *dx, float *dweights, const void *dy,
	const void *x, const int64_t *at, const float *weights, int64_t n, int64_t top, int64_t c))

/* --- Cross-entropy ------------------------------------------------------------------------ */

/* Vocabulary-parallel cross-entropy over this shard's logits[n,v], which are columns lo … lo + v of
 * the vocabulary. Row i begins at element i * row, row >= v; the elements between the rows are
 * neither read nor written.
 * 1. xent_max sets max[n], the maximum of each row. The caller all-reduces it (max) over tp.
 * 2. xent_exp sets logits = exp(logits - max) in place, sum[n] to each row's sum, and target[n] to
 *    logit - max of the target if this shard holds it, otherwise to 0. The caller all-reduces sum
 *    and target (sum) over tp.
 * 3. xent_grad sets logits = (exp / sum - onehot) * scale[0] in place: the gradient.
 * The loss of token i is log(sum[i]) - target[i]. */
OP(xent_max, STORED, OWN, (struct backend *k, float *max, const void *logits, int64_t n, int64_t v,
	int64_t row))
OP(xent_exp, STORED, OWN, (struct backend *k, void *logits, float *sum, float *target,
	const float *max, const int32_t *targets, int64_t n, int64_t v, int64_t row, int32_t lo))
OP(xent_grad, STORED, OWN, (struct backend *k, void *logits, const float *sum, const int32_t *targets,
	const float *scale, int64_t n, int64_t v, int64_t row, int32_t lo))
/* The three steps at once, for a shard that holds the whole vocabulary: sets sum and target as step
 * 2 does, and logits to the gradient. */
OP(xent, STORED, HOST, (struct backend *k, void *logits, float *sum, float *target,
	const int32_t *targets, const float *scale, int64_t n, int64_t v, int64_t row))
/* *loss += sum over i of log(sum[i]) - target[i], in double. */
OP(xent_loss, FP32, OWN, (struct backend *k, double *loss, const float *sum, const float *target,
	int64_t n))

/* --- Elements ----------------------------------------------------------------------------- */

/* y += x, summed in fp32; both in the storage type. */
OP(add, STORED, OWN, (struct backend *k, void *y, const void *x, int64_t count))
/* x[n,c] += bias[c] */
OP(add_bias, STORED, OWN, (struct backend *k, void *x, const void *bias, int64_t n, int64_t c))
/* Sets out[c] to the column sums of x[n,c]; with `add`, adds to it. */
OP(sum_rows, STORED, OWN, (struct backend *k, float *out, const void *x, int64_t n, int64_t c,
	bool add))
/* y += x, both fp32. */
OP(accumulate, FP32, OWN, (struct backend *k, float *y, const float *x, int64_t count))
/* Converts from the storage type to fp32. Sets y. */
OP(storage_to_fp32, STORED, OWN, (struct backend *k, float *y, const void *x, int64_t count))
/* Converts from fp32 to the storage type: to the nearest even, or, if key is not NULL, up or down
 * at random with the mean kept (Gupta et al., arXiv 1502.02551). Element first + i of the key's
 * stream decides on x[i]. Sets y. */
OP(fp32_to_storage, STORED, OWN, (struct backend *k, void *y, const float *x, int64_t count,
	const struct philox_key *key, uint64_t first))

/* --- Optimizers --------------------------------------------------------------------------- */

/* *sum += the sum of squares, in double. It is not finite if an element is not. */
OP(sqnorm, FP32, OWN, (struct backend *k, double *sum, const float *x, int64_t count))
/* Judges a step by the sums of all ranks. Sets norm = sqrt(squares) / loss_scale, and grad_scale =
 * min(1, clip / norm) / loss_scale. skip is 1 if the loss, which is the sum / tokens, or the norm is
 * not finite or above its limit. With a window, loss_scale halves, but not below 1, if one of them
 * is not finite, and doubles after `window` steps with finite ones; good counts these. Sets
 * logit_scale = loss_scale / tokens, for the next step. */
OP(step_judge, FP32, HOST, (struct backend *k, struct step_numbers *s, const struct step_rule *r))
/* AdamW (Loshchilov and Hutter, arXiv 1711.05101), with decoupled decay p -= lr * weight_decay * p,
 * of n updates, which share nothing. lr, step, grad_scale and skip are those of *s. */
OP(adamw, FP32, OWN, (struct backend *k, const struct update *u, int n, const struct adamw_args *a,
	const struct step_numbers *s))
/* SGD with momentum in PyTorch's form: g' = grad_scale g + decay p; m = momentum m + g' (m = g' at
 * step 1); p -= lr m. lr, step, grad_scale and skip are those of *s. */
OP(sgd, FP32, OWN, (struct backend *k, const struct update *u, int n, const struct sgd_args *a,
	const struct step_numbers *s))

/* clang-format on */
#undef OP
