/* ptx — the emulator's double of kernels/cuda/ptx.cuh, found before it: the same functions, with
 * the meaning that the PTX ISA gives the instructions. */
#ifndef MUSTER_CUDA_PTX_CUH
#define MUSTER_CUDA_PTX_CUH

#include "tests/gpu/emulator/tensor.h"

template <class T> T *dynamic_shared()
{
	return (T *)emulated_dynamic_shared();
}

inline int thread_again()
{
	return (int)threadIdx.x;
}

inline void cp_async16_zfill(void *shared, const void *global, bool there)
{
	emulated_copy_async(shared, there ? global : nullptr);
}

inline void cp_async_commit()
{
	emulated_copy_commit();
}

template <int LEFT> void cp_async_wait()
{
	emulated_copy_wait(LEFT);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, EMULATED_SITE)
{
	emulated_matrix m = { (const uint16_t *)row, r };
	emulated_touch(row, 16, false);
	emulated_meet(MEET_LDMATRIX, 0xffffffff, &m, emulated_ldmatrix_x4, EMULATED_HERE);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, EMULATED_SITE)
{
	emulated_matrix m = { (const uint16_t *)row, r };
	emulated_touch(row, 16, false);
	emulated_meet(MEET_LDMATRIX_TRANS, 0xffffffff, &m, emulated_ldmatrix_x4_trans,
		      EMULATED_HERE);
}

template <class T>
void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMULATED_SITE)
{
	constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
	static_assert(bf16 || std::is_same_v<T, __half>, "of bf16 or fp16");
	emulated_product p = { d, a, b };
	emulated_meet(bf16 ? MEET_MMA_BF16 : MEET_MMA_FP16, 0xffffffff, &p,
		      bf16 ? emulated_mma_bf16 : emulated_mma_fp16, EMULATED_HERE);
}

/* Numbers below the smallest normal one count as zeros, on both sides. */
inline float exp2_approx(float x)
{
	float y = exp2f(fabsf(x) < 0x1p-126f ? 0 : x);
	return y < 0x1p-126f ? 0 : y;
}

template <class T> uint32_t pack2(float first, float second)
{
	if constexpr (std::is_same_v<T, __nv_bfloat16>)
		return emulated_bits<uint32_t>(__floats2bfloat162_rn(first, second));
	else
		return emulated_bits<uint32_t>(__floats2half2_rn(first, second));
}

#endif
