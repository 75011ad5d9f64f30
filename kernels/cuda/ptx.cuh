/*
 * ptx — all instructions that CUDA C++ does not provide, and dynamic shared memory.
 *
 * Kernels use only these functions for them, so that a double of this file (tests/gpu/emulator) can
 * run kernels on a processor. All are for sm_80 and later. PTX ISA 8.x describes them and their
 * layouts, in the sections "cp.async", "ldmatrix" and "Matrix Fragments for mma.m16n8k16". l is the
 * lane, l / 4 its group, l % 4 its index in the group.
 */
#ifndef MUSTER_KERNELS_CUDA_PTX_CUH
#define MUSTER_KERNELS_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>

/* The block's dynamic shared memory, 128-byte aligned. Every call returns its start. */
template <class T> __device__ __forceinline__ T *dynamic_shared()
{
	extern __shared__ __align__(128) unsigned char shared_bytes[];
	return reinterpret_cast<T *>(shared_bytes);
}

/* threadIdx.x, read at each call. The compiler keeps no values that follow from it in registers
 * across the turns of a loop. */
__device__ __forceinline__ int thread_again()
{
	int x;
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
	return x;
}

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* --- copies from global to shared memory that go on while the thread does --- */

/* Copies 16 bytes; both ends are 16-byte aligned. Without `there` it reads nothing and writes
 * zeros. */
__device__ __forceinline__ void cp_async16_zfill(void *shared, const void *global, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
		     "l"(global), "r"(there ? 16 : 0)
		     : "memory");
}

/* The copies of this thread since the last commit become one group. */
__device__ __forceinline__ void cp_async_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the last LEFT groups of this thread are in flight. What other threads copied
 * is complete after a barrier. */
template <int LEFT> __device__ __forceinline__ void cp_async_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* --- matrices of 8 rows of 16 bytes, from shared memory into a warp's registers --- */

/* Loads four matrices: `row` of lanes 8i … 8i + 7 are the rows of matrix i. r[i] gets elements
 * 2 (l % 4) and the next of its row l / 4. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(row))
		     : "memory");
}

/* As ldmatrix_x4, transposed: r[i] gets elements l / 4 of matrix i's rows 2 (l % 4) and the next. */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(row))
		     : "memory");
}

/* --- products of a warp --- */

/*
 * d[16,8] += a[16,16] · b[16,8], sums in fp32. Each register of a and b holds two neighbouring
 * elements, the first in its low half. The columns and rows k below are the first of the two.
 *     a[0], a[1]: rows l / 4, l / 4 + 8, k = 2 (l % 4);  a[2], a[3]: the same rows, k + 8
 *     b[0], b[1]: column l / 4, k = 2 (l % 4) and k + 8
 *     d[0], d[1]: row l / 4, columns 2 (l % 4) and the next;  d[2], d[3]: row l / 4 + 8
 */
template <class T>
__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4],
					  const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void mma_16816<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
							 const uint32_t (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, "
		     "%5, %6, %7}, {%8, %9}, "
		     "{%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma_16816<__half>(float (&d)[4], const uint32_t (&a)[4],
						  const uint32_t (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, "
		     "%6, %7}, {%8, %9}, "
		     "{%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* --- numbers --- */

/* 2^x to 2 ulp. 0 below the smallest normal number; NaN for NaN. */
__device__ __forceinline__ float exp2_approx(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Two numbers rounded to the nearest even, `first` in the low half. */
template <class T> __device__ __forceinline__ uint32_t pack2(float first, float second);

template <> __device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float first, float second)
{
	uint32_t r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
	return r;
}

template <> __device__ __forceinline__ uint32_t pack2<__half>(float first, float second)
{
	uint32_t r;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
	return r;
}

#endif
