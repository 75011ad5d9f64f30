/*
 * numbers — the types that weights are stored in, beside fp32: read into it, which is exact, and
 * rounded from it to the nearest, ties to even. What was read of a type is written in it to the
 * same bits, NaNs too.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_NUMBERS_H
#define MUSTER_AGENT_ENGINE_HF_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_type {
	const char *name;  /* the job's: fp32, bf16, fp16 */
	const char *dtype; /* safetensors': F32, BF16, F16 */
	const char *torch; /* config.json's: float32, bfloat16, float16 */
	int size;          /* bytes */
};

/* NULL when it is none of the three. */
const struct hf_type *hf_numbers_type(const char *name);
const struct hf_type *hf_numbers_dtype(const char *dtype);

/* from: n stored numbers, little-endian. */
void hf_numbers_widen(const struct hf_type *t, const void *from, size_t n, float *to);
/* to may be from. False when a finite number is beyond the type's range: it has become an
 * infinity. */
bool hf_numbers_narrow(const struct hf_type *t, const float *from, size_t n, void *to);

#endif
