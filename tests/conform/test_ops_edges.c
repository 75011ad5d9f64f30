/* Edge cases of the ops that random numbers do not reach, for every backend. */
#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
	const char *backend_name;
	struct backend *k;
	const struct ops *o;
};

static struct fixture fixtures[] = {
	{ "reference", NULL, NULL }, { "cpu", NULL, NULL },    { "cpu-v2", NULL, NULL },
	{ "cpu-v3", NULL, NULL },    { "cpu-v4", NULL, NULL },
};
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

/* k stays NULL if this processor lacks the instruction set. */
static int open_backends(void **state)
{
	(void)state;
	for (int i = 0; i < FIXTURES; i++) {
		struct fixture *f = &fixtures[i];
		struct err e = ERR_INIT;
		if (backend_open(f->backend_name, 2, &f->k, &e) < 0 && e.code != ERR_UNSUPPORTED)
			return -1;
		f->o = f->k ? backend_ops(f->k) : NULL;
	}
	return 0;
}

static int close_backends(void **state)
{
	(void)state;
	for (int i = 0; i < FIXTURES; i++)
		backend_close(fixtures[i].k);
	return 0;
}

#define EACH_BACKEND(f) \
	for (struct fixture *f = fixtures; f < fixtures + FIXTURES; f++) \
		if (f->k)

static void logits_of_any_size_give_a_finite_loss(void **state)
{
	(void)state;
	EACH_BACKEND(f)
	{
		float x[3][5] = { { 1e4f, -1e4f, 0, 9999, 1e4f },
				  { -1e4f, -1e4f, -1e4f, -1e4f, -1e4f },
				  { 1e-30f, 88, -88, 87, 0 } };
		float max[3], sum[3], target[3];
		const int32_t targets[3] = { 0, 1, 4 };
		f->o->xent_max(f->k, max, x, 3, 5, 5);
		assert_true(max[0] == 1e4f && max[1] == -1e4f && max[2] == 88);
		f->o->xent_exp(f->k, x, sum, target, max, targets, 3, 5, 5, 0);
		assert_float_equal(sum[0], 2 + exp(-1), 1e-6);
		assert_float_equal(logf(sum[0]) - target[0], log(2 + exp(-1)), 1e-6);
		assert_float_equal(sum[1], 5, 0);
		assert_float_equal(logf(sum[2]) - target[2], 88 + log(1 + exp(-1)), 1e-4);
		assert_true(x[0][1] == 0 && x[0][0] == 1);
		f->o->xent_grad(f->k, x, sum, targets, &(float){ 1 }, 3, 5, 5, 0);
		assert_float_equal(x[1][0], 0.2, 1e-7);
		assert_float_equal(x[1][1], -0.8, 1e-6);
	}
}

enum { V = 1000, CUT = 377, ROWS = 4 };

static void random_logits(float *x)
{
	for (int i = 0; i < ROWS * V; i++)
		x[i] = (float)(i * 7919 % 1000) / 100;
}

static void take_columns(float *to, const float *from, int lo, int v)
{
	for (int i = 0; i < ROWS; i++)
		memcpy(to + i * v, from + i * V + lo, (size_t)v * sizeof *to);
}

/* One whole row of logits, and the same row split in two, where one piece has no target. All three
 * steps must agree. */
static void shards_of_the_vocabulary_agree_with_the_whole(void **state)
{
	(void)state;
	const int32_t targets[ROWS] = { 3, 100, CUT - 1, 0 };
	static float whole[ROWS * V], piece[2][ROWS * V];
	const float half = 0.5f;
	EACH_BACKEND(f)
	{
		float max[3][ROWS], sum[3][ROWS], target[3][ROWS];
		int lo[2] = { 0, CUT }, v[2] = { CUT, V - CUT };
		random_logits(whole);
		f->o->xent_max(f->k, max[2], whole, ROWS, V, V);
		for (int s = 0; s < 2; s++) {
			take_columns(piece[s], whole, lo[s], v[s]);
			f->o->xent_max(f->k, max[s], piece[s], ROWS, v[s], v[s]);
		}
		for (int i = 0; i < ROWS; i++)
			assert_true(fmaxf(max[0][i], max[1][i]) == max[2][i]);
		f->o->xent_exp(f->k, whole, sum[2], target[2], max[2], targets, ROWS, V, V, 0);
		for (int s = 0; s < 2; s++)
			f->o->xent_exp(f->k, piece[s], sum[s], target[s], max[2], targets, ROWS,
				       v[s], v[s], lo[s]);
		for (int i = 0; i < ROWS; i++) {
			assert_float_equal(sum[0][i] + sum[1][i], sum[2][i], 1e-4);
			assert_true(target[0][i] == target[2][i] && target[1][i] == 0);
		}
		f->o->xent_grad(f->k, whole, sum[2], targets, &half, ROWS, V, V, 0);
		for (int s = 0; s < 2; s++) {
			f->o->xent_grad(f->k, piece[s], sum[2], targets, &half, ROWS, v[s], v[s],
					lo[s]);
			for (int i = 0; i < ROWS; i++)
				for (int j = 0; j < v[s]; j++)
					assert_float_equal(piece[s][i * v[s] + j],
							   whole[i * V + lo[s] + j], 1e-7);
		}
	}
}

/* Whole sequences, with q, k and v of a token in one row. */
static struct attn_shape fused_shape(int64_t batch, int64_t seq, int heads, int dim)
{
	int64_t row = (int64_t)3 * heads * dim;
	return (struct attn_shape){ .batch = batch,
				    .q_len = seq,
				    .k_len = seq,
				    .heads = heads,
				    .kv_heads = heads,
				    .dim = dim,
				    .q_row = row,
				    .q_batch = seq * row,
				    .kv_row = row,
				    .kv_batch = seq * row,
				    .o_batch = seq * heads * dim };
}

static void nan_propagates(void **state)
{
	(void)state;
	const struct attn_shape s = fused_shape(1, 3, 1, 4);
	const int32_t target = 0;
	EACH_BACKEND(f)
	{
		float x[36] = { NAN, 1, 2, 3 }, y[36], w[4] = { 1, 1, 1, 1 }, mean, rstd, lse[3],
		      sum, zero = 3, t;
		f->o->gelu_fwd(f->k, y, x, 4);
		assert_true(isnan(y[0]) && !isnan(y[1]));
		f->o->layernorm_fwd(f->k, y, NULL, &mean, &rstd, x, NULL, w, w, 1, 4, 1e-5f);
		assert_true(isnan(y[3]));
		f->o->attention_fwd(f->k, y, lse, x, x + 4, x + 8, &s);
		assert_true(isnan(y[0]) && isnan(lse[0]) && !isnan(lse[1]));
		double square = 0;
		f->o->sqnorm(f->k, &square, x, 4);
		assert_true(isnan(square));
		f->o->xent_exp(f->k, x, &sum, &t, &zero, &target, 1, 4, 4, 0);
		assert_true(isnan(sum));
	}
}

static void activations_of_large_inputs_are_zero_or_the_input(void **state)
{
	(void)state;
	EACH_BACKEND(f)
	{
		float x[] = { -1e4f, -50, -12, 0, 12, 50, 1e4f }, y[7],
		      gu[] = { -1e4f, 1e4f, 3, 3 }, z[2];
		f->o->gelu_fwd(f->k, y, x, 7);
		assert_true(y[0] == 0 && y[1] == 0 && y[3] == 0 && y[5] == 50 && y[6] == 1e4f);
		assert_true(fabsf(y[2]) < 1e-6f && y[4] == 12);
		float dy[] = { 1, 1, 1, 1, 1, 1, 1 };
		f->o->gelu_bwd(f->k, dy, dy, x, 7);
		assert_true(dy[0] == 0 && dy[1] == 0 && dy[3] == 0.5f && dy[5] == 1 && dy[6] == 1);
		f->o->swiglu_fwd(f->k, z, gu, 1, 2);
		assert_true(fabsf(z[0]) == 0 && z[1] == 3e4f);
	}
}

/* If scores are ±1e4, each query takes the value of one key. */
static void attention_with_huge_scores_picks_one_value(void **state)
{
	(void)state;
	enum { SEQ = 70, DIM = 4 };
	const struct attn_shape s = fused_shape(1, SEQ, 1, DIM);
	static float qkv[SEQ][3][DIM], o[SEQ][DIM], lse[SEQ], dqkv[SEQ][3][DIM];
	memset(qkv, 0, sizeof qkv);
	for (int i = 0; i < SEQ; i++) {
		qkv[i][0][0] = 200;
		qkv[i][1][0] = i == 0 ? 100 : -100;
		qkv[i][2][0] = (float)i + 7;
	}
	EACH_BACKEND(f)
	{
		f->o->attention_fwd(f->k, o, lse, qkv[0][0], qkv[0][1], qkv[0][2], &s);
		f->o->attention_bwd(f->k, dqkv[0][0], dqkv[0][1], dqkv[0][2], o, o, lse, qkv[0][0],
				    qkv[0][1], qkv[0][2], &s, false);
		for (int i = 0; i < SEQ; i++) {
			assert_float_equal(o[i][0], 7, 1e-5);
			assert_float_equal(lse[i], 1e4, 1e-2);
			assert_float_equal(dqkv[i][0][0], 0, 1e-5);
		}
		assert_float_equal(dqkv[0][2][0], 7 * SEQ, 1e-2);
	}
}

/* Keys in three pieces and queries in two, as in context parallelism. The joined pieces equal the
 * whole, forward and backward. */
static void attention_of_pieces_equals_that_of_the_whole(void **state)
{
	(void)state;
	enum {
		BATCH = 2,
		SEQ = 150,
		HEADS = 4,
		KV = 2,
		DIM = 8,
		Q = HEADS * DIM,
		G = KV * DIM,
		ALL = BATCH * SEQ * Q
	};
	static float q[ALL], key[ALL], v[ALL], dout[ALL], o[2][ALL], piece[ALL], grad[2][3][ALL];
	static float lse[BATCH * HEADS * SEQ], part[3][BATCH * HEADS * SEQ];
	static int32_t starts[BATCH * SEQ];
	static const int64_t samples[BATCH] = { 4, 1 };
	static const int64_t keys[] = { 0, 70, 71, SEQ }, queries[] = { 0, 64, SEQ };
	for (int i = 0; i < ALL; i++) {
		q[i] = (float)(i * 31 % 101) / 30 - 1.5f;
		key[i] = (float)(i * 17 % 103) / 30 - 1.5f;
		v[i] = (float)(i * 13 % 107) / 30 - 1.5f;
		dout[i] = (float)(i * 7 % 109) / 30 - 1.5f;
		starts[i % (BATCH * SEQ)] = i % SEQ < 40 ? 0 : 40;
	}
	const struct attn_shape whole = {
		.batch = BATCH,
		.q_len = SEQ,
		.k_len = SEQ,
		.heads = HEADS,
		.kv_heads = KV,
		.dim = DIM,
		.q_row = Q,
		.q_batch = SEQ * Q,
		.kv_row = G,
		.kv_batch = SEQ * G,
		.o_batch = SEQ * Q,
		.starts = starts,
		.starts_batch = SEQ,
		.drop = { { { 1, 2 } }, 0.2f },
		.samples = samples,
		.heads_all = HEADS,
		.seq = SEQ,
	};
	EACH_BACKEND(f)
	{
		f->o->attention_fwd(f->k, o[0], lse, q, key, v, &whole);
		f->o->attention_bwd(f->k, grad[0][0], grad[0][1], grad[0][2], dout, o[0], lse, q,
				    key, v, &whole, false);
		memset(grad[1], 0, sizeof grad[1]);
		for (int i = 0; i < 2; i++) {
			int64_t at = queries[i];
			struct attn_shape s = whole;
			s.q_first = at;
			s.q_len = queries[i + 1] - at;
			s.starts += at;
			for (int j = 0; j < 3; j++) {
				s.k_first = keys[j];
				s.k_len = keys[j + 1] - keys[j];
				f->o->attention_fwd(f->k, j ? piece + at * Q : o[1] + at * Q,
						    part[j], q + at * Q, key + s.k_first * G,
						    v + s.k_first * G, &s);
				if (j)
					f->o->attention_merge(f->k, o[1] + at * Q, part[0],
							      piece + at * Q, part[j], &s);
			}
			for (int j = 0; j < 3; j++) {
				s.k_first = keys[j];
				s.k_len = keys[j + 1] - keys[j];
				f->o->attention_bwd(f->k, grad[1][0] + at * Q,
						    grad[1][1] + s.k_first * G,
						    grad[1][2] + s.k_first * G, dout + at * Q,
						    o[1] + at * Q, part[0], q + at * Q,
						    key + s.k_first * G, v + s.k_first * G, &s,
						    true);
			}
			for (int64_t t = 0; t < s.q_len; t++)
				assert_float_equal(part[0][t], lse[at + t], 1e-5);
		}
		for (int i = 0; i < ALL; i++) {
			assert_float_equal(o[1][i], o[0][i], 2e-6);
			assert_float_equal(grad[1][0][i], grad[0][0][i], 1e-5);
		}
		for (int i = 0; i < BATCH * SEQ * G; i++) {
			assert_float_equal(grad[1][1][i], grad[0][1][i], 3e-5);
			assert_float_equal(grad[1][2][i], grad[0][2][i], 3e-5);
		}
	}
}

/* Two documents in one row equal two sequences. Tokens that are generated one by one with a cache
 * equal those of the whole sequence. */
static void documents_and_caches_equal_whole_sequences(void **state)
{
	(void)state;
	enum { SEQ = 140, EDGE = 70, DIM = 16, ROW = 3 * DIM };
	static float qkv[SEQ * ROW], o[3][SEQ * DIM], lse[SEQ], one[1];
	static int32_t starts[SEQ];
	for (int i = 0; i < SEQ * ROW; i++)
		qkv[i] = (float)(i * 37 % 211) / 70 - 1.5f;
	for (int i = 0; i < SEQ; i++)
		starts[i] = i < EDGE ? 0 : EDGE;
	struct attn_shape packed = fused_shape(1, SEQ, 1, DIM), two = fused_shape(2, EDGE, 1, DIM),
			  last = packed;
	packed.starts = starts;
	packed.starts_batch = SEQ;
	EACH_BACKEND(f)
	{
		f->o->attention_fwd(f->k, o[0], lse, qkv, qkv + DIM, qkv + 2 * DIM, &packed);
		f->o->attention_fwd(f->k, o[1], lse, qkv, qkv + DIM, qkv + 2 * DIM, &two);
		for (int64_t t = 0; t < SEQ; t++) {
			last.q_len = 1;
			last.q_first = t;
			last.k_len = t + 1 - starts[t];
			last.k_first = starts[t];
			const float *first = qkv + starts[t] * ROW;
			f->o->attention_fwd(f->k, o[2] + t * DIM, one, qkv + t * ROW, first + DIM,
					    first + 2 * DIM, &last);
		}
		for (int i = 0; i < SEQ * DIM; i++) {
			assert_float_equal(o[0][i], o[1][i], 1e-6);
			assert_float_equal(o[0][i], o[2][i], 1e-6);
		}
	}
}

static void a_query_that_sees_no_key_gives_zero(void **state)
{
	(void)state;
	struct attn_shape s = fused_shape(1, 3, 1, 2);
	s.k_first = 1;
	EACH_BACKEND(f)
	{
		float qkv[18] = { 1, 2, 3, 4, 5, 6, 7, 8 }, o[6], lse[3], grad[18];
		for (int i = 0; i < 18; i++)
			grad[i] = NAN;
		f->o->attention_fwd(f->k, o, lse, qkv, qkv + 2, qkv + 4, &s);
		assert_true(o[0] == 0 && o[1] == 0 && lse[0] == -INFINITY && lse[1] > -INFINITY);
		f->o->attention_bwd(f->k, grad, grad + 2, grad + 4, o, o, lse, qkv, qkv + 2,
				    qkv + 4, &s, false);
		assert_true(grad[0] == 0 && grad[1] == 0); /* the first query's dq */
		/* the key after all queries */
		assert_true(grad[14] == 0 && grad[15] == 0 && grad[16] == 0 && grad[17] == 0);
		for (int i = 0; i < 18; i++)
			assert_true(isfinite(grad[i]));
		float o2[6] = { 0 }, lse2[3] = { -INFINITY, -INFINITY, -INFINITY }, kept[6];
		memcpy(kept, o, sizeof o);
		f->o->attention_merge(f->k, o, lse, o2, lse2, &s);
		assert_memory_equal(kept, o, sizeof o);
		assert_true(lse[0] == -INFINITY);
		f->o->attention_merge(f->k, o2, lse2, o, lse, &s);
		assert_memory_equal(o2 + 2, o + 2, 4 * sizeof *o);
		assert_true(o2[0] == 0 && lse2[0] == -INFINITY);
	}
}

/* The dropped elements are those that ops.h defines. This holds for whole tensors and for any of
 * their rows. */
static void dropout_depends_on_the_global_element(void **state)
{
	(void)state;
	enum { N = 20, C = 515 };
	const struct dropout d = { philox_key(9, PHILOX_DROPOUT, 1), 0.3f };
	static float x[N * C], y[N * C], again[N * C];
	int64_t rows[N];
	for (int i = 0; i < N * C; i++)
		x[i] = (float)(i % 7 + 1);
	for (int i = 0; i < N; i++)
		rows[i] = (int64_t)(N - i) * 1000003;
	EACH_BACKEND(f)
	{
		int kept = 0;
		f->o->dropout(f->k, y, x, rows, N, C, &d);
		for (int i = 0; i < N * C; i++) {
			uint64_t element = (uint64_t)rows[i / C] * C + (uint64_t)(i % C);
			uint32_t words[4];
			philox4(d.key, element / 4, words);
			bool keep = (double)words[element % 4] * 0x1p-32 >= (double)d.p;
			assert_float_equal(y[i], keep ? x[i] / (1 - d.p) : 0, 1e-5);
			kept += keep;
		}
		assert_true(abs(kept - N * C * 7 / 10) < 250);
		memcpy(again, x, sizeof x);
		f->o->dropout(f->k, again + 7 * C, again + 7 * C, rows + 7, 2, C, &d);
		assert_memory_equal(again + 7 * C, y + 7 * C, 2 * C * sizeof *y);
		const struct dropout none = { d.key, 0 };
		f->o->dropout(f->k, again, x, rows, N, C, &none);
		assert_memory_equal(again, x, sizeof x);
	}
}

/* Equal logits are ordered by index, huge ones stay finite, and NaN still chooses existing experts,
 * each once. */
static void the_router_always_chooses_existing_experts(void **state)
{
	(void)state;
	enum { E = 4, TOP = 2 };
	EACH_BACKEND(f)
	{
		const float logits[4][E] = { { 1, 1, 1, 1 },
					     { -1e4f, 1e4f, 1e4f, 0 },
					     { NAN, NAN, NAN, NAN },
					     { 0, NAN, 5, 1 } };
		float weights[4][TOP], probs[4][E], lse[4];
		int32_t chosen[4][TOP];
		for (int before = 0; before < 2; before++) {
			f->o->route_fwd(f->k, chosen[0], weights[0], probs[0], lse, logits[0], 4, E,
					TOP, before);
			assert_true(chosen[0][0] == 0 && chosen[0][1] == 1 && chosen[1][0] == 1 &&
				    chosen[1][1] == 2);
			assert_float_equal(weights[0][1], before ? 0.25 : 0.5, 1e-6);
			assert_float_equal(weights[1][0], 0.5, 1e-6);
			assert_float_equal(probs[1][1], 0.5, 1e-6);
			assert_true(probs[1][0] == 0 && isnan(lse[2]) && isnan(weights[2][0]));
			for (int i = 2; i < 4; i++)
				assert_true(chosen[i][0] != chosen[i][1] && chosen[i][0] >= 0 &&
					    chosen[i][0] < E && chosen[i][1] >= 0 &&
					    chosen[i][1] < E);
		}
	}
}

/* A gradient that is a sum over no rows is set to zero, or stays. */
static void check_sums_over_nothing(const struct fixture *f)
{
	enum { C = 8, D = 3, SUMS = 7 };
	const struct ops *o = f->o;
	const int64_t rows[2] = { 0, 0 };
	for (int add = 0; add < 2; add++) {
		float x[SUMS][2 * C * D];
		for (int i = 0; i < SUMS * 2 * C * D; i++)
			x[i / (2 * C * D)][i % (2 * C * D)] = add ? 7 : NAN;
		o->linear_bwd_weight(f->k, x[0], x[1], x[0], x[0], 0, C, D, add);
		o->linear_bwd_weight_strided(f->k, x[2], x[0], C, x[0], 0, C, D, add);
		o->grouped_bwd_weight(f->k, x[3], C * D, x[0], x[0], rows, 0, 2, C, D, add);
		o->layernorm_bwd(f->k, x[0], x[4], x[5], x[0], NULL, x[0], x[0], x[0], x[0], 0, C,
				 add);
		o->rmsnorm_bwd(f->k, x[0], x[4] + C, x[0], NULL, x[0], x[0], x[0], 0, C, add);
		o->sum_rows(f->k, x[6], x[0], 0, C, add);
		const int counts[SUMS] = { C * D, D, C * D, 2 * C * D, 2 * C, C, C };
		for (int i = 0; i < SUMS; i++)
			for (int j = 0; j < 2 * C * D; j++)
				assert_true(add             ? x[i][j] == 7
					    : j < counts[i] ? x[i][j] == 0
							    : isnan(x[i][j]));
	}
}

/* If arrays are empty, nothing is read or written. */
static void empty_inputs_are_allowed(void **state)
{
	(void)state;
	struct attn_shape none = fused_shape(0, 4, 2, 8), no_keys = fused_shape(1, 1, 1, 2);
	struct rope_shape rope = { .n = 0, .row = 4, .heads = 1, .dim = 2, .seq = 1 };
	const struct dropout d = { { { 1, 2 } }, 0.5f };
	const struct sgd_args sgd = { .momentum = 0 };
	const struct step_numbers one = { .step = 1, .lr = 1, .grad_scale = 1 };
	no_keys.k_len = 0;
	EACH_BACKEND(f)
	{
		const struct ops *o = f->o;
		float q[2] = { 1, 2 }, out[2] = { NAN, NAN }, lse[1] = { 3 }, dq[2] = { NAN, NAN };
		o->attention_fwd(f->k, NULL, NULL, NULL, NULL, NULL, &none);
		o->attention_merge(f->k, NULL, NULL, NULL, NULL, &none);
		o->attention_bwd(f->k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &none,
				 false);
		o->attention_fwd(f->k, out, lse, q, NULL, NULL, &no_keys);
		assert_true(out[0] == 0 && out[1] == 0 && lse[0] == -INFINITY);
		o->attention_bwd(f->k, dq, NULL, NULL, q, out, lse, q, NULL, NULL, &no_keys, false);
		assert_true(dq[0] == 0 && dq[1] == 0);
		o->rope_fwd(f->k, NULL, &rope, NULL, NULL);
		o->embed_fwd(f->k, NULL, NULL, NULL, NULL, NULL, 0, 8, 0, 1);
		o->embed_bwd(f->k, NULL, NULL, NULL, NULL, NULL, 0, 8, 0, 1);
		o->dropout(f->k, NULL, NULL, NULL, 0, 8, &d);
		o->route_fwd(f->k, NULL, NULL, NULL, NULL, NULL, 0, 4, 2, true);
		o->route_bwd(f->k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 4, 2,
			     true);
		o->gather_rows(f->k, NULL, NULL, NULL, 0, 8);
		o->combine_fwd(f->k, NULL, NULL, NULL, NULL, 0, 2, 8);
		o->combine_bwd(f->k, NULL, NULL, NULL, NULL, NULL, NULL, 0, 2, 8);
		o->accumulate(f->k, NULL, NULL, 0);
		o->storage_to_fp32(f->k, NULL, NULL, 0);
		o->fp32_to_storage(f->k, NULL, NULL, 0, NULL, 0);
		o->sgd(f->k, NULL, 0, &sgd, &one);
		o->sgd(f->k, &(struct update){ .count = 0 }, 1, &sgd, &one);
		o->adamw(f->k, NULL, 0, &(struct adamw_args){ .eps = 1 }, &one);
		o->route_load(f->k, NULL, NULL, 0, 1);
		o->route_count(f->k, NULL, NULL, 0, 4, 2, 1);
		o->route_drop(f->k, NULL, NULL, NULL, 0, 4, 2, 1, 1);
		o->grouped_fwd(f->k, NULL, NULL, NULL, 0, (int64_t[]){ 0, 0 }, 0, 2, 8, 8);
		check_sums_over_nothing(f);
	}
}

static void outputs_may_be_inputs_where_ops_table_allows_it(void **state)
{
	(void)state;
	enum { N = 90, C = 257 };
	static float a[N * C], b[N * C], dy[N * C], y[2][N * C], sum[N * C], dx[2][N * C], w[C],
		dw[C], mean[N], rstd[N];
	for (int i = 0; i < N * C; i++) {
		a[i] = (float)(i * 31 % 101) / 50 - 1;
		b[i] = (float)(i * 17 % 103) / 50 - 1;
		dy[i] = (float)(i * 13 % 107) / 50 - 1;
		w[i % C] = 0.5f;
	}
	EACH_BACKEND(f)
	{
		f->o->layernorm_fwd(f->k, y[0], sum, mean, rstd, a, b, w, w, N, C, 1e-5f);
		memcpy(dx[0], a, sizeof a);
		f->o->layernorm_fwd(f->k, y[1], dx[0], mean, rstd, dx[0], b, w, w, N, C, 1e-5f);
		assert_memory_equal(y[0], y[1], sizeof a);
		assert_memory_equal(sum, dx[0], sizeof a);
		f->o->layernorm_bwd(f->k, dx[0], dw, dw, dy, b, sum, mean, rstd, w, N, C, true);
		memcpy(dx[1], b, sizeof b);
		f->o->layernorm_bwd(f->k, dx[1], dw, dw, dy, dx[1], sum, mean, rstd, w, N, C, true);
		assert_memory_equal(dx[0], dx[1], sizeof a);
		f->o->gelu_bwd(f->k, dx[0], dy, a, N * C);
		memcpy(dx[1], dy, sizeof dy);
		f->o->gelu_bwd(f->k, dx[1], dx[1], a, N * C);
		assert_memory_equal(dx[0], dx[1], sizeof a);
	}
}

static void sqnorm_sums_in_double_in_one_order(void **state)
{
	(void)state;
	enum { COUNT = 300001 };
	static float x[COUNT];
	double expected = 0;
	for (int i = 0; i < COUNT; i++) {
		x[i] = (float)(i % 1000) * 1e-3f;
		expected += (double)x[i] * (double)x[i];
	}
	EACH_BACKEND(f)
	{
		double sum = 3;
		f->o->sqnorm(f->k, &sum, x, COUNT);
		assert_true(fabs(sum - 3 - expected) < 1e-12 * expected);
	}
	double first = 0;
	for (int threads = 1; threads <= 3; threads++) {
		struct backend *k;
		assert_int_equal(backend_open("cpu", threads, &k, NULL), 0);
		double sum = 0;
		backend_ops(k)->sqnorm(k, &sum, x, COUNT);
		assert_true(threads == 1 || sum == first);
		first = sum;
		backend_ops(k)->sqnorm(k, &sum, x, 0);
		assert_true(sum == first);
		backend_close(k);
	}
}

/* If m = v = 0, the first step moves by lr against the sign of the gradient, whatever its
 * magnitude. */
static void the_first_step_of_adamw_has_length_lr(void **state)
{
	(void)state;
	const struct adamw_args a = { .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-12f };
	const struct step_numbers s = { .step = 1, .lr = 0.01f, .grad_scale = 2 };
	EACH_BACKEND(f)
	{
		float p[3] = { 1, 1, 1 }, g[3] = { 1e-3f, -5, 0 }, m[3] = { 0 }, v[3] = { 0 };
		const struct update u = {
			.p = p, .g = g, .m = m, .v = v, .count = 3, .weight_decay = 0.5f
		};
		f->o->adamw(f->k, &u, 1, &a, &s);
		assert_float_equal(p[0], 1 - 0.005 - 0.01, 1e-6);
		assert_float_equal(p[1], 1 - 0.005 + 0.01, 1e-6);
		assert_float_equal(p[2], 1 - 0.005, 1e-6);
		assert_float_equal(m[1], -1, 1e-6);
		assert_float_equal(v[1], 0.1, 1e-5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_of_any_size_give_a_finite_loss),
		cmocka_unit_test(shards_of_the_vocabulary_agree_with_the_whole),
		cmocka_unit_test(nan_propagates),
		cmocka_unit_test(activations_of_large_inputs_are_zero_or_the_input),
		cmocka_unit_test(attention_with_huge_scores_picks_one_value),
		cmocka_unit_test(attention_of_pieces_equals_that_of_the_whole),
		cmocka_unit_test(documents_and_caches_equal_whole_sequences),
		cmocka_unit_test(a_query_that_sees_no_key_gives_zero),
		cmocka_unit_test(dropout_depends_on_the_global_element),
		cmocka_unit_test(the_router_always_chooses_existing_experts),
		cmocka_unit_test(empty_inputs_are_allowed),
		cmocka_unit_test(outputs_may_be_inputs_where_ops_table_allows_it),
		cmocka_unit_test(sqnorm_sums_in_double_in_one_order),
		cmocka_unit_test(the_first_step_of_adamw_has_length_lr),
	};
	return cmocka_run_group_tests(tests, open_backends, close_backends);
}
