/*
 * attention_rig — one call of attention, on a device over the doubles and by the reference, with the
 * same numbers. For tests that are built with HAVE_CUDNN.
 */
#ifndef MUSTER_TESTS_GPU_ATTENTION_RIG_H
#define MUSTER_TESTS_GPU_ATTENTION_RIG_H

#include "base/choices.h"
#include "kernels/ops.h"
#include "tests/gpu/doubles/cudnn.h"

#include <stdbool.h>
#include <stdint.h>

enum { QKV, O, DOUT, DQKV, ARRAYS };

/* Fused rows [heads q | kv_heads k | kv_heads v], the reference's arrays, and the device's. */
struct attention_rig {
	struct attn_shape s;
	int64_t count[ARRAYS], lses;
	struct backend *reference, *k;
	float *host[ARRAYS], *lse, *got;
	uint16_t *packed;
	void *at[ARRAYS];
	float *device_lse;
	int32_t *starts, *device_starts; /* NULL: no documents */
};

/* For each test. After it, nothing may be open. */
int attention_setup(void **state);
int attention_teardown(void **state);

/* Sequences whose rows follow one another. */
struct attn_shape attention_shape(int batch, int len, int heads, int kv_heads, int dim);
/* name: of the device's backend. */
void attention_open(struct attention_rig *r, const char *name, const struct attn_shape *s);
void attention_close(struct attention_rig *r);
/* Documents of random lengths from 1 to `longest`: the first ones, and others in their place. */
void attention_give_documents(struct attention_rig *r, int64_t longest, uint32_t seed);
void attention_fill_starts(struct attention_rig *r, int64_t longest, uint32_t seed);

/* Where keys and values begin in a fused row, and an element of an array on the device. */
int64_t attention_key_at(const struct attn_shape *s);
int64_t attention_value_at(const struct attn_shape *s);
uint16_t *attention_device(const struct attention_rig *r, int i, int64_t element);
/* Copies an array from the host to the device. */
void attention_put(struct attention_rig *r, int i);

void attention_forward(struct attention_rig *r);
void attention_backward(struct attention_rig *r, bool add);
void attention_reference_forward(struct attention_rig *r);
/* Compare the device's results with the reference's. The second one comes after the first one, or
 * after attention_reference_forward. */
void attention_check_forward(struct attention_rig *r);
void attention_check_gradients(struct attention_rig *r);

/* The relative difference of an array on the device from the reference's. */
double attention_error(struct attention_rig *r, int i);

/* How often cuDNN ran: so far; in a forward pass of its own; in both passes, with checks. */
int attention_ran(void);
int attention_once(const char *name, const struct attn_shape *s);
int attention_both_passes(struct attention_rig *r);
/* Opens a rig where the ways take `own` and `dnn` seconds. */
void attention_measure_with(struct attention_rig *r, const struct attn_shape *s,
			    enum choices_mode mode, double own, double dnn);

#endif
