/*
 * device — CUDA C++ for g++, over emulate.h. The option -include puts it before a .cu file. Everything
 * here does what the CUDA C++ Programming Guide defines for the built-in of that name. Approximate
 * intrinsics are computed exactly.
 */
#ifndef MUSTER_TESTS_GPU_DEVICE_H
#define MUSTER_TESTS_GPU_DEVICE_H

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tests/gpu/emulator/emulate.h"

#include <math.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

/* --- Words --- */

#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __constant__
#undef __forceinline__
#undef __noinline__
/* The emulator finds the shared memory of a library's kernels as its thread-local memory. */
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))

static const emulated_index &threadIdx = emulated_now.thread_idx;
static const emulated_index &blockIdx = emulated_now.block_idx;
static const emulated_index &blockDim = emulated_now.block_dim;
static const emulated_index &gridDim = emulated_now.grid_dim;
static const int warpSize = EMULATED_WARP;

/* For what one lane does for the others: it accesses their stacks, which kernels do not. */
#define EMULATED_UNCHECKED __attribute__((no_sanitize("thread")))

#define EMULATED_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATED_HERE \
	emulated_site \
	{ \
		file, line \
	}

/* --- Launching --- */

inline void *emulated_statics()
{
	static thread_local char anchor;
	return &anchor;
}

template <class... P> struct emulated_call {
	static void run(const void *function, const void *args)
	{
		std::apply((void (*)(P...))function, *(const std::tuple<P...> *)args);
	}
};

template <class... P, class... A>
cudaError_t emulated_launch_kernel(const cudaLaunchConfig_t *config, void (*kernel)(P...),
				   A &&...args)
{
	static_assert((std::is_trivially_copyable_v<P> && ...),
		      "the device gets copies of the bytes");
	const std::tuple<P...> copies(static_cast<P>(args)...);
	const emulated_kernel k = { (const void *)kernel, emulated_call<P...>::run,
				    emulated_statics };
	return emulated_launch(config, &k, &copies, sizeof copies);
}
#define cudaLaunchKernelEx emulated_launch_kernel

template <class T>
cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value)
{
	return ::cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *kernel, int threads,
							  size_t shared)
{
	return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel,
							       threads, shared);
}

/* --- Meeting ------------------------------------------------------------------------------ */

inline void __syncthreads(EMULATED_SITE)
{
	emulated_barrier(EMULATED_HERE);
}

inline void __syncwarp(unsigned mask = 0xffffffff, EMULATED_SITE)
{
	emulated_meet(MEET_SYNC, mask, nullptr, nullptr, EMULATED_HERE);
}

struct emulated_shuffle {
	unsigned long long value, result;
	int from; /* lane */
};

EMULATED_UNCHECKED inline void emulated_shuffle_all(void *const lanes[EMULATED_WARP])
{
	for (int i = 0; i < EMULATED_WARP; i++) {
		emulated_shuffle *s = (emulated_shuffle *)lanes[i];
		if (!s)
			continue;
		const emulated_shuffle *other = (const emulated_shuffle *)lanes[s->from];
		if (!other)
			emulated_misuse("a shuffle: lane %d takes the value of lane %d, which is "
					"not in the mask",
					i, s->from);
		s->result = other->value;
	}
}

/* Lanes form segments of `width`. `from` is a lane of this lane's segment; beyond it, the lane's own
 * value is taken. */
template <class T>
T emulated_shuffle_of(unsigned mask, T value, int from, int width, bool beyond, emulated_site site)
{
	static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "4 or 8 bytes travel");
	if (width < 1 || width > EMULATED_WARP || (width & (width - 1)))
		emulated_misuse("%s:%d: a shuffle of width %d", site.file, site.line, width);
	emulated_shuffle s = { 0, 0, beyond ? emulated_lane() : from };
	memcpy(&s.value, (const void *)&value, sizeof value);
	emulated_meet(MEET_SHUFFLE, mask, &s, emulated_shuffle_all, site);
	memcpy((void *)&value, &s.result, sizeof value);
	return value;
}

template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATED_SITE)
{
	int base = emulated_lane() & ~(width - 1);
	return emulated_shuffle_of(mask, value, base + (lane & (width - 1)), width, false,
				   EMULATED_HERE);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_SITE)
{
	int lane = emulated_lane(), base = lane & ~(width - 1), from = lane - (int)delta;
	return emulated_shuffle_of(mask, value, from, width, from < base, EMULATED_HERE);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_SITE)
{
	int lane = emulated_lane(), end = (lane & ~(width - 1)) + width, from = lane + (int)delta;
	return emulated_shuffle_of(mask, value, from, width, from >= end, EMULATED_HERE);
}

/* Lanes of later segments are out of range; those of earlier ones are not. */
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATED_SITE)
{
	int lane = emulated_lane(), end = (lane & ~(width - 1)) + width, from = lane ^ bits;
	return emulated_shuffle_of(mask, value, from, width, from >= end, EMULATED_HERE);
}

struct emulated_vote {
	bool yes;
	unsigned all; /* lanes whose predicate is true */
};

EMULATED_UNCHECKED inline void emulated_vote_all(void *const lanes[EMULATED_WARP])
{
	unsigned all = 0;
	for (int i = 0; i < EMULATED_WARP; i++)
		if (lanes[i] && ((emulated_vote *)lanes[i])->yes)
			all |= 1u << i;
	for (int i = 0; i < EMULATED_WARP; i++)
		if (lanes[i])
			((emulated_vote *)lanes[i])->all = all;
}

inline unsigned __ballot_sync(unsigned mask, int yes, EMULATED_SITE)
{
	emulated_vote v = { yes != 0, 0 };
	emulated_meet(MEET_VOTE, mask, &v, emulated_vote_all, EMULATED_HERE);
	return v.all;
}

inline int __any_sync(unsigned mask, int yes, EMULATED_SITE)
{
	return __ballot_sync(mask, yes, file, line) != 0;
}

inline int __all_sync(unsigned mask, int yes, EMULATED_SITE)
{
	return __ballot_sync(mask, yes, file, line) == mask;
}

inline void __threadfence()
{
}
inline void __threadfence_block()
{
}

/* --- Memory ------------------------------------------------------------------------------- */

template <class T> T __ldg(const T *p)
{
	return *p;
}
template <class T> T __ldcs(const T *p)
{
	return *p;
}
template <class T> T __ldcg(const T *p)
{
	return *p;
}
template <class T> T __ldlu(const T *p)
{
	return *p;
}
template <class T> void __stcs(T *p, T x)
{
	*p = x;
}
template <class T> void __stcg(T *p, T x)
{
	*p = x;
}

/* This is atomic, since threads only switch where they wait. */
template <class T, class F> T emulated_atomic(T *p, F &&f)
{
	static_assert(std::is_integral_v<T>,
		      "sums of floating-point numbers would depend on the order");
	emulated_atomic_begin(p);
	T old = *p;
	*p = f(old);
	emulated_atomic_end();
	return old;
}

template <class T> T atomicAdd(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return (T)(old + x); });
}
template <class T> T atomicSub(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return (T)(old - x); });
}
template <class T> T atomicMax(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return old > x ? old : x; });
}
template <class T> T atomicMin(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return old < x ? old : x; });
}
template <class T> T atomicOr(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return (T)(old | x); });
}
template <class T> T atomicAnd(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return (T)(old & x); });
}
template <class T> T atomicExch(T *p, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T) { return x; });
}
template <class T> T atomicCAS(T *p, std::common_type_t<T> is, std::common_type_t<T> x)
{
	return emulated_atomic(p, [&](T old) { return old == is ? x : old; });
}

/* --- Bits --------------------------------------------------------------------------------- */

template <class To, class From> To emulated_bits(From x)
{
	static_assert(sizeof(To) == sizeof(From), "as many bits");
	To y;
	memcpy(&y, &x, sizeof y);
	return y;
}

inline int __float_as_int(float x)
{
	return emulated_bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
	return emulated_bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
	return emulated_bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
	return emulated_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
	return emulated_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
	return emulated_bits<double>(x);
}
inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
	return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
	return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
	return __builtin_ffsll(x);
}
inline int __clz(int x)
{
	return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
	return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
	return (unsigned)((unsigned long long)x * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
	return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline unsigned __brev(unsigned x)
{
	unsigned y = 0;
	for (int i = 0; i < 32; i++)
		y |= (x >> i & 1) << (31 - i);
	return y;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
	unsigned long long both = (unsigned long long)y << 32 | x;
	unsigned z = 0;
	for (int i = 0; i < 4; i++) {
		unsigned byte = (unsigned)(both >> 8 * (s >> 4 * i & 7)) & 0xff;
		z |= (s >> 4 * i & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
	}
	return z;
}

/* --- Numbers ------------------------------------------------------------------------------ */

inline float rsqrtf(float x)
{
	return (float)(1 / sqrt((double)x));
}
inline double rsqrt(double x)
{
	return 1 / sqrt(x);
}
inline float __expf(float x)
{
	return expf(x);
}
inline float __exp2f(float x)
{
	return exp2f(x);
}
inline float __logf(float x)
{
	return logf(x);
}
inline float __log2f(float x)
{
	return log2f(x);
}
inline float __powf(float x, float y)
{
	return powf(x, y);
}
inline float __fdividef(float x, float y)
{
	return x / y;
}
inline float __fdiv_rn(float x, float y)
{
	return x / y;
}
inline float __fsqrt_rn(float x)
{
	return sqrtf(x);
}
inline float __frcp_rn(float x)
{
	return 1 / x;
}
inline float __frsqrt_rn(float x)
{
	return rsqrtf(x);
}
inline float __fmaf_rn(float x, float y, float z)
{
	return fmaf(x, y, z);
}
/* Device code may contract operations except through these; volatile keeps g++ from contracting. */
inline float __fadd_rn(float x, float y)
{
	volatile float z = x + y;
	return z;
}
inline float __fsub_rn(float x, float y)
{
	volatile float z = x - y;
	return z;
}
inline float __fmul_rn(float x, float y)
{
	volatile float z = x * y;
	return z;
}
inline double __dadd_rn(double x, double y)
{
	volatile double z = x + y;
	return z;
}
inline double __dmul_rn(double x, double y)
{
	volatile double z = x * y;
	return z;
}
inline float __saturatef(float x)
{
	return x > 1 ? 1 : x > 0 ? x : 0;
}
inline float __int2float_rn(int x)
{
	return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
	return (float)x;
}
inline int __float2int_rn(float x)
{
	return (int)rintf(x);
}
inline int __float2int_rz(float x)
{
	return (int)x;
}
inline float __double2float_rn(double x)
{
	return (float)x;
}

#define EMULATED_MIN_MAX(T) \
	inline T min(T x, T y) \
	{ \
		return y < x ? y : x; \
	} \
	inline T max(T x, T y) \
	{ \
		return x < y ? y : x; \
	}
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
inline float min(float x, float y)
{
	return fminf(x, y);
}
inline float max(float x, float y)
{
	return fmaxf(x, y);
}
inline double min(double x, double y)
{
	return fmin(x, y);
}
inline double max(double x, double y)
{
	return fmax(x, y);
}

#endif
