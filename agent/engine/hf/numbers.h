/*
 * numbers — converts between fp32 and the types that weights are stored in. Reading a type into fp32
 * is exact. Writing rounds to nearest, ties to even; a number that was read from a type is written
 * back with the same bits, NaNs included.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_NUMBERS_H
#define MUSTER_AGENT_ENGINE_HF_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_type {
	const char *name;  /* in job files: fp32, bf16, fp16 */
	const char *dtype; /* in safetensors: F32, BF16, F16 */
	const char *torch; /* in config.json: float32, bfloat16, float16 */
	int size;          /* bytes */
};

/* NULL: none of the three. */
const struct hf_type *hf_numbers_type(const char *name);
const struct hf_type *hf_numbers_dtype(const char *dtype);
const struct hf_type *hf_numbers_torch(const char *torch);

/* from: n stored numbers, little-endian. */
void hf_numbers_widen(const struct hf_type *t, const void *from, size_t n, float *to);
/* `to` may be `from`. Returns false if a finite number is beyond the type's range; it becomes an
 * infinity. */
bool hf_numbers_narrow(const struct hf_type *t, const float *from, size_t n, void *to);

#endif
