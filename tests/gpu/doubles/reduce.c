/* The reductions of NCCL's double: in the type itself, from the last rank to the first. */
#include "tests/gpu/doubles/reduce.h"
#include "tests/gpu/doubles/runtime.h"

#include <stdint.h>
#include <string.h>

size_t double_type_size(ncclDataType_t type)
{
	switch (type) {
	case ncclInt8:
	case ncclUint8:
		return 1;
	case ncclFloat16:
	case ncclBfloat16:
		return 2;
	case ncclInt32:
	case ncclUint32:
	case ncclFloat32:
		return 4;
	case ncclInt64:
	case ncclUint64:
	case ncclFloat64:
		return 8;
	default:
		double_misuse("type %d is none of NCCL's", (int)type);
	}
}

static float of_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	/* to the nearest even */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* W: the type in which two elements are added; integers wrap. */
#define FOLD(T, W, GET, PUT) \
	for (size_t i = 0; i < count; i++) { \
		T *acc = out; \
		const T *more = in; \
		W a = (W)GET(acc[i]), b = (W)GET(more[i]); \
		bool less = GET(more[i]) < GET(acc[i]); \
		acc[i] = (T)PUT(op == ncclProd  ? a * b \
				: op == ncclMax ? less ? a : b \
				: op == ncclMin ? less ? b : a \
						: a + b); \
	}
#define AVERAGE(T, GET, PUT) \
	for (size_t i = 0; i < count; i++) { \
		T *acc = out; \
		acc[i] = (T)PUT(GET(acc[i]) / (__typeof__(GET(acc[i])))n); \
	}
#define SAME(x) (x)

void double_fold(ncclDataType_t type, ncclRedOp_t op, void *out, const void *in, size_t count)
{
	switch (type) {
	case ncclInt8:
		FOLD(int8_t, uint64_t, SAME, SAME) break;
	case ncclUint8:
		FOLD(uint8_t, uint64_t, SAME, SAME) break;
	case ncclInt32:
		FOLD(int32_t, uint64_t, SAME, SAME) break;
	case ncclUint32:
		FOLD(uint32_t, uint64_t, SAME, SAME) break;
	case ncclInt64:
		FOLD(int64_t, uint64_t, SAME, SAME) break;
	case ncclUint64:
		FOLD(uint64_t, uint64_t, SAME, SAME) break;
	case ncclFloat16:
		FOLD(_Float16, float, SAME, SAME) break;
	case ncclBfloat16:
		FOLD(uint16_t, float, of_bf16, to_bf16) break;
	case ncclFloat32:
		FOLD(float, float, SAME, SAME) break;
	case ncclFloat64:
		FOLD(double, double, SAME, SAME) break;
	default:
		double_misuse("type %d is none of NCCL's", (int)type);
	}
}

void double_average(ncclDataType_t type, void *out, size_t count, int n)
{
	switch (type) {
	case ncclInt8:
		AVERAGE(int8_t, SAME, SAME) break;
	case ncclUint8:
		AVERAGE(uint8_t, SAME, SAME) break;
	case ncclInt32:
		AVERAGE(int32_t, SAME, SAME) break;
	case ncclUint32:
		AVERAGE(uint32_t, SAME, SAME) break;
	case ncclInt64:
		AVERAGE(int64_t, SAME, SAME) break;
	case ncclUint64:
		AVERAGE(uint64_t, SAME, SAME) break;
	case ncclFloat16:
		AVERAGE(_Float16, SAME, SAME) break;
	case ncclBfloat16:
		AVERAGE(uint16_t, of_bf16, to_bf16) break;
	case ncclFloat32:
		AVERAGE(float, SAME, SAME) break;
	case ncclFloat64:
		AVERAGE(double, SAME, SAME) break;
	default:
		double_misuse("type %d is none of NCCL's", (int)type);
	}
}
