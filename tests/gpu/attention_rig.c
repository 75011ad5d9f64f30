#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/dnn.h"
#endif

#ifdef HAVE_CUDNN

#include "tests/gpu/attention_rig.h"
#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/runtime.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int things_before;

int attention_setup(void **state)
{
	(void)state;
	unsetenv("MUSTER_DOUBLE_CUDNN");
	unsetenv("MUSTER_EMULATE_SM");
	double_virtual_clock = false;
	things_before = double_open_things();
	return 0;
}

int attention_teardown(void **state)
{
	(void)state;
	return double_open_things() == things_before && double_cudnn.handles == 0 &&
			       double_cudnn.open_descriptors == 0
		       ? 0
		       : -1;
}

/* --- Numbers ------------------------------------------------------------------------------ */

/* Of 5 bits, so that each storage type has them exactly. */
static float number(int64_t i, int seed)
{
	return (float)((i * 7 + i / 13 * 3 + seed * 5) % 17 - 8) / 8;
}

static uint16_t bf16_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static float of_bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float out;
	memcpy(&out, &bits, sizeof out);
	return out;
}

static double relative_error(const float *a, const float *b, int64_t count)
{
	double difference = 0, size = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += pow((double)a[i] - (double)b[i], 2);
		size += pow((double)b[i], 2);
	}
	return sqrt(difference / (size > 0 ? size : 1));
}

/* --- A call ------------------------------------------------------------------------------- */

struct attn_shape attention_shape(int batch, int len, int heads, int kv_heads, int dim)
{
	int64_t row = (int64_t)(heads + 2 * kv_heads) * dim;
	return (struct attn_shape){ .batch = batch,
				    .q_len = len,
				    .k_len = len,
				    .heads = heads,
				    .kv_heads = kv_heads,
				    .dim = dim,
				    .q_row = row,
				    .q_batch = row * len,
				    .kv_row = row,
				    .kv_batch = row * len,
				    .o_batch = (int64_t)heads * dim * len,
				    .heads_all = heads,
				    .seq = len };
}

void attention_put(struct attention_rig *r, int i)
{
	for (int64_t j = 0; j < r->count[i]; j++)
		r->packed[j] = bf16_of(r->host[i][j]);
	backend_put(r->k, r->at[i], r->packed, (size_t)r->count[i] * sizeof *r->packed);
}

void attention_open(struct attention_rig *r, const char *name, const struct attn_shape *s)
{
	*r = (struct attention_rig){ .s = *s, .lses = s->batch * s->heads * s->q_len };
	r->count[QKV] = r->count[DQKV] = s->batch * s->q_batch;
	r->count[O] = r->count[DOUT] = s->batch * s->o_batch;
	r->k = open_backend(name);
	assert_int_equal(backend_open("reference", 1, &r->reference, NULL), 0);
	r->packed = calloc((size_t)r->count[QKV], sizeof *r->packed);
	r->got = calloc((size_t)r->count[QKV], sizeof *r->got);
	r->lse = calloc((size_t)r->lses, sizeof *r->lse);
	r->device_lse = backend_alloc(r->k, (size_t)r->lses * sizeof *r->lse);
	for (int i = 0; i < ARRAYS; i++) {
		r->host[i] = calloc((size_t)r->count[i], sizeof(float));
		r->at[i] = backend_alloc(r->k, (size_t)r->count[i] * sizeof(float));
		for (int64_t j = 0; j < r->count[i]; j++)
			r->host[i][j] = number(j, i);
	}
	for (int i = 0; i < ARRAYS; i++)
		attention_put(r, i);
}

/* Between the starts of two sequences there is room. */
static int64_t starts_row(const struct attn_shape *s)
{
	return s->q_len + 3;
}

static void put_starts(struct attention_rig *r)
{
	backend_put(r->k, r->device_starts, r->starts,
		    (size_t)(r->s.batch * starts_row(&r->s)) * sizeof *r->starts);
}

void attention_fill_starts(struct attention_rig *r, int64_t longest, uint32_t seed)
{
	int64_t row = starts_row(&r->s);
	for (int64_t b = 0; b < r->s.batch; b++)
		for (int64_t t = 0, end = 0, start = 0; t < row; t++) {
			if (t == end) {
				seed = seed * 1664525 + 1013904223;
				start = t;
				end = t + 1 + (int64_t)((seed >> 8) % (uint64_t)longest);
			}
			r->starts[b * row + t] = (int32_t)start;
		}
	put_starts(r);
}

void attention_give_documents(struct attention_rig *r, int64_t longest, uint32_t seed)
{
	size_t bytes = (size_t)(r->s.batch * starts_row(&r->s)) * sizeof *r->starts;
	r->starts = malloc(bytes);
	r->s.starts = r->device_starts = backend_alloc(r->k, bytes);
	r->s.starts_batch = starts_row(&r->s);
	attention_fill_starts(r, longest, seed);
}

/* The reference's documents are in host memory. */
static struct attn_shape reference_shape(const struct attention_rig *r)
{
	struct attn_shape s = r->s;
	s.starts = r->starts;
	return s;
}

void attention_close(struct attention_rig *r)
{
	backend_free(r->k, r->device_starts);
	free(r->starts);
	for (int i = 0; i < ARRAYS; i++) {
		free(r->host[i]);
		backend_free(r->k, r->at[i]);
	}
	backend_free(r->k, r->device_lse);
	free(r->packed);
	free(r->got);
	free(r->lse);
	backend_close(r->reference);
	backend_close(r->k);
}

int64_t attention_key_at(const struct attn_shape *s)
{
	return (int64_t)s->heads * s->dim;
}

int64_t attention_value_at(const struct attn_shape *s)
{
	return attention_key_at(s) + (int64_t)s->kv_heads * s->dim;
}

uint16_t *attention_device(const struct attention_rig *r, int i, int64_t element)
{
	return (uint16_t *)r->at[i] + element;
}

void attention_forward(struct attention_rig *r)
{
	const struct attn_shape *s = &r->s;
	backend_ops(r->k)->attention_fwd(r->k, r->at[O], r->device_lse, r->at[QKV],
					 attention_device(r, QKV, attention_key_at(s)),
					 attention_device(r, QKV, attention_value_at(s)), s);
}

void attention_reference_forward(struct attention_rig *r)
{
	const struct attn_shape s = reference_shape(r);
	float *qkv = r->host[QKV];
	backend_ops(r->reference)
		->attention_fwd(r->reference, r->host[O], r->lse, qkv, qkv + attention_key_at(&s),
				qkv + attention_value_at(&s), &s);
}

double attention_error(struct attention_rig *r, int i)
{
	assert_int_equal(backend_get(r->k, r->packed, r->at[i],
				     (size_t)r->count[i] * sizeof *r->packed, NULL),
			 0);
	for (int64_t j = 0; j < r->count[i]; j++)
		r->got[j] = of_bf16(r->packed[j]);
	return relative_error(r->got, r->host[i], r->count[i]);
}

void attention_check_forward(struct attention_rig *r)
{
	attention_reference_forward(r);
	assert_true(attention_error(r, O) < 5e-3);
	assert_int_equal(
		backend_get(r->k, r->got, r->device_lse, (size_t)r->lses * sizeof(float), NULL), 0);
	assert_true(relative_error(r->got, r->lse, r->lses) < 1e-5);
}

int attention_ran(void)
{
	return double_cudnn.forward + double_cudnn.backward;
}

int attention_once(const char *name, const struct attn_shape *s)
{
	struct attention_rig r;
	int before = double_cudnn.forward;
	attention_open(&r, name, s);
	attention_forward(&r);
	attention_check_forward(&r);
	attention_close(&r);
	return double_cudnn.forward - before;
}

void attention_check_gradients(struct attention_rig *r)
{
	const struct attn_shape s = reference_shape(r);
	float *qkv = r->host[QKV], *d = r->host[DQKV];
	backend_ops(r->reference)
		->attention_bwd(r->reference, d, d + attention_key_at(&s),
				d + attention_value_at(&s), r->host[DOUT], r->host[O], r->lse, qkv,
				qkv + attention_key_at(&s), qkv + attention_value_at(&s), &s,
				false);
	assert_true(attention_error(r, DQKV) < 1e-2);
}

void attention_backward(struct attention_rig *r, bool add)
{
	const struct attn_shape *s = &r->s;
	backend_ops(r->k)->attention_bwd(r->k, r->at[DQKV],
					 attention_device(r, DQKV, attention_key_at(s)),
					 attention_device(r, DQKV, attention_value_at(s)),
					 r->at[DOUT], r->at[O], r->device_lse, r->at[QKV],
					 attention_device(r, QKV, attention_key_at(s)),
					 attention_device(r, QKV, attention_value_at(s)), s, add);
}

int attention_both_passes(struct attention_rig *r)
{
	int before = attention_ran();
	attention_forward(r);
	attention_check_forward(r);
	attention_backward(r, false);
	attention_check_gradients(r);
	return attention_ran() - before;
}

void attention_measure_with(struct attention_rig *r, const struct attn_shape *s,
			    enum choices_mode mode, double own, double dnn)
{
	double_virtual_clock = true;
	double_kernel_seconds = own;
	double_cudnn_seconds = double_cudnn_any_seconds = dnn;
	attention_open(r, "cuda:bf16", s);
	choices_set_mode(backend_choices(r->k), mode);
}

#endif
